package intent

// Words name a source class for people, as in "connections of pods of this node"; empty for a class that is not known.
func (c Class) Words() string {
	switch c {
	case LocalPod:
		return "pods of this node"
	case Hairpin:
		return "a backend pod itself"
	case RemotePod:
		return "pods of other nodes"
	case Node:
		return "the node itself"
	case Localhost:
		return "the node at 127.0.0.1"
	case RemoteNode:
		return "other nodes"
	case External:
		return "clients from outside"
	}
	return ""
}
