package snapshot

import "strings"

// podDir is the folder that holds the evidence of pods' own network namespaces: pods/NAMESPACE/NAME/ip-addr.txt.
const podDir = "pods/"

// PodDir is the folder in which evidence of a pod's own network namespace lies, for "namespace/name".
func PodDir(pod string) string { return podDir + pod + "/" }

// PodOf is the pod, as "namespace/name", whose own network namespace a file of evidence is about; empty for the
// node's. The folder may lie in another, or in an archive.
func PodOf(file string) string {
	if i := strings.LastIndexByte(file, ':'); i >= 0 {
		file = file[i+1:]
	}
	rest, ok := strings.CutPrefix(file, podDir)
	if !ok {
		if _, rest, ok = strings.Cut(file, "/"+podDir); !ok {
			return ""
		}
	}
	parts := strings.Split(rest, "/")
	// The kubelet's log folders (pods/NAMESPACE_NAME_UID/CONTAINER/0.log) look alike; no namespace has a "_".
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || strings.Contains(parts[0], "_") {
		return ""
	}
	return parts[0] + "/" + parts[1]
}

// servicePodsDir is the folder that holds, for Services without a ready endpoint, the pods that their selectors match:
// service-pods/NAMESPACE/NAME.json. A list without pods says that there are none.
const servicePodsDir = "service-pods/"

// ServicePodsFile is the file with the pods that a Service selects.
func ServicePodsFile(namespace, name string) string {
	return servicePodsDir + namespace + "/" + name + ".json"
}

// ServicePodsOf is the Service whose selected pods a file holds; empty for any other file. The folder may lie in
// another, or in an archive.
func ServicePodsOf(file string) (namespace, name string) {
	if i := strings.LastIndexByte(file, ':'); i >= 0 {
		file = file[i+1:]
	}
	rest, ok := strings.CutPrefix(file, servicePodsDir)
	if !ok {
		if _, rest, ok = strings.Cut(file, "/"+servicePodsDir); !ok {
			return "", ""
		}
	}
	namespace, name, _ = strings.Cut(rest, "/")
	name, ok = strings.CutSuffix(name, ".json")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", ""
	}
	return namespace, name
}
