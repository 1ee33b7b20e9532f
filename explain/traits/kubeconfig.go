package traits

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// readKubeconfig claims the address of the API server that a kubeconfig's current context names. Nothing else of it
// is kept: the rest are credentials.
func (l *ledger) readKubeconfig(src Source) error {
	if len(src.Text) > maxConfig {
		return fmt.Errorf("read kubeconfig: %d bytes is more than the %d that are read", len(src.Text), maxConfig)
	}
	var file struct {
		Current  string `json:"current-context"`
		Contexts []struct {
			Name    string `json:"name"`
			Context struct {
				Cluster string `json:"cluster"`
			} `json:"context"`
		} `json:"contexts"`
		Clusters []struct {
			Name    string `json:"name"`
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if yaml.Unmarshal([]byte(strings.TrimPrefix(src.Text, "\ufeff")), &file) != nil {
		// The error may quote the text.
		return fmt.Errorf("read kubeconfig: it does not parse as YAML")
	}
	cluster := ""
	for _, c := range file.Contexts {
		if c.Name == file.Current {
			cluster = c.Context.Cluster
		}
	}
	for _, c := range file.Clusters {
		server := c.Cluster.Server
		if server == "" || cluster != "" && c.Name != cluster {
			continue
		}
		f := Fact{Name: "server", Value: server, File: src.File, Line: max(src.Line, 1), Text: "server: " + server}
		src.lines(func(n int, line string) bool {
			if strings.Contains(line, "server") && strings.Contains(line, server) {
				f.Line = n
				return false
			}
			return true
		})
		l.add("server", configured, f)
		return nil
	}
	return nil
}
