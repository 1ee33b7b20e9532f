package objects

// Len is the number of objects of the kinds that are kept, and of those that are passed over.
func (s *Set) Len() int {
	n := len(s.Services) + len(s.EndpointSlices) + len(s.Endpoints) + len(s.Nodes) + len(s.Pods) + len(s.Namespaces) + len(s.ConfigMaps) +
		len(s.ClusterRoles) + len(s.RoleBindings)
	for _, count := range s.ignored {
		n += count
	}
	return n
}
