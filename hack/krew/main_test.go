package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// manifest is what of a krew manifest is checked here; make krew-check asks krew's own validator.
type manifest struct {
	APIVersion, Kind string
	Metadata         struct{ Name string }
	Spec             struct {
		Version, Homepage, ShortDescription string
		Platforms                           []platform
	}
}

type platform struct {
	Selector         struct{ MatchLabels struct{ OS, Arch string } }
	URI, SHA256, Bin string
}

// TestTemplate: the manifest names the archives that .goreleaser.yaml makes.
func TestTemplate(t *testing.T) {
	text, err := os.ReadFile("../../krew.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := render(string(text), "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := yaml.Unmarshal(rendered, &m); err != nil {
		t.Fatalf("%v\n%s", err, rendered)
	}
	if m.Metadata.Name != "svcnet" || m.Spec.Version != "v1.2.3" {
		t.Errorf("name %q version %q", m.Metadata.Name, m.Spec.Version)
	}
	if strings.Contains(m.Spec.ShortDescription, "\n") || strings.HasSuffix(m.Spec.ShortDescription, ".") || len(m.Spec.ShortDescription) > 50 {
		t.Errorf("short description %q: want one short line without a full stop", m.Spec.ShortDescription)
	}
	var systems []string
	for _, p := range m.Spec.Platforms {
		system := p.Selector.MatchLabels.OS + "_" + p.Selector.MatchLabels.Arch
		systems = append(systems, system)
		if !strings.Contains(p.URI, "/v1.2.3/svcnet_"+system+".") || len(p.SHA256) != 64 {
			t.Errorf("%s: %s %s", system, p.URI, p.SHA256)
		}
		if windows := p.Selector.MatchLabels.OS == "windows"; strings.HasSuffix(p.Bin, ".exe") != windows || strings.HasSuffix(p.URI, ".zip") != windows {
			t.Errorf("%s: %s in %s", system, p.Bin, p.URI)
		}
	}
	want := []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64", "windows_arm64"}
	if !slices.Equal(systems, want) {
		t.Errorf("platforms %v, want %v", systems, want)
	}
}
