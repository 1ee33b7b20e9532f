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
