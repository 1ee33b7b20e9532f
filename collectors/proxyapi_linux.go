package collectors

import (
	"fmt"
	"os"
	"path"

	"k8s.io/client-go/tools/clientcmd"
)

// ProxyAPI is the API as this machine's kube-proxy reads it, with its credentials; nil when there is no kube-proxy
// to be seen or its credentials cannot be read. It may list nodes, Services and endpoint slices, which is what
// svcnet needs, and on a worker node it is often the only one that may.
func ProxyAPI() *API {
	running, err := findProxy()
	if err != nil {
		return nil
	}
	file := running.kubeconfig()
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	loaded, err := clientcmd.Load(data)
	if err != nil {
		return nil
	}
	// Files that it names are seen through the process's root, and from the kubeconfig's folder.
	dir := path.Dir(path.Clean(file))
	at := func(name *string) {
		switch {
		case *name == "":
		case path.IsAbs(*name):
			*name = fmt.Sprintf("/proc/%d/root%s", running.pid, *name)
		default:
			*name = path.Join(dir, *name)
		}
	}
	for _, c := range loaded.Clusters {
		at(&c.CertificateAuthority)
	}
	for _, u := range loaded.AuthInfos {
		if u.Exec != nil || u.AuthProvider != nil {
			return nil // a program of the proxy's container: it is not for us to run
		}
		at(&u.ClientCertificate)
		at(&u.ClientKey)
		at(&u.TokenFile)
	}
	c, err := clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil
	}
	if master := running.flag("master"); master != "" {
		c.Host = master
	}
	return &API{Config: c, From: "kube-proxy's kubeconfig"}
}
