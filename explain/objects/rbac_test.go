package objects

import "testing"

func TestRoles(t *testing.T) {
	text := `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:node-proxier"}
rules:
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-proxier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-proxier"}
subjects:
- {kind: User, name: "system:kube-proxy"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:node-proxier"}
rules:
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
`
	set := &Set{}
	if problems := Decode(set, []byte(text), "rbac.yaml"); len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
	set.Sort()
	r, ok := set.ClusterRole("system:node-proxier")
	if !ok || r.Line != 1 || len(r.Rules) != 1 || len(set.ClusterRoles) != 1 || set.Len() != 2 {
		t.Errorf("%+v", set)
	}
	if b := set.RoleBindings; len(b) != 1 || b[0].Line != 7 || b[0].Subjects[0].Name != "system:kube-proxy" {
		t.Errorf("%+v", b)
	}
	if _, ok := set.ClusterRole("other"); ok {
		t.Error("a role that is not there")
	}
}
