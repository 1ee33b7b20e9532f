package collectors

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKernelParts: what each source says of a part, and that "cannot be seen" is not "not there".
func TestKernelParts(t *testing.T) {
	const symbols = "ffffffff81000000 T _stext\n0000000000000000 t nft_register_chain_type\n" +
		"0000000000000000 t ctnetlink_dump_table.constprop.0\t[nf_conntrack_netlink]\n0000000000000000 T xnft_match_init\n"
	for name, tt := range map[string]struct {
		files   map[string]string
		part    string
		has     bool
		certain bool
	}{
		"a folder":               {map[string]string{"sys/module/ip_set/parameters": ""}, "ip_set", true, true},
		"a module":               {map[string]string{"proc/modules": "x 1 1 - Live 0x0\nip_set 49152 1 - Live 0x0\n"}, "ip_set", true, true},
		"built in":               {map[string]string{"lib/modules/" + kernelRelease() + "/modules.builtin": "kernel/net/netfilter/ipset/ip_set.ko\nkernel/net/ipv4/x-y.ko\n"}, "ip_set", true, true},
		"built in, with a dash":  {map[string]string{"lib/modules/" + kernelRelease() + "/modules.builtin": "kernel/net/netfilter/nf-tables.ko.zst\n"}, "nf_tables", true, true},
		"a symbol":               {map[string]string{"proc/kallsyms": symbols}, "nf_tables", true, true},
		"a symbol of a module":   {map[string]string{"proc/kallsyms": symbols}, "nf_conntrack_netlink", true, true},
		"no symbol":              {map[string]string{"proc/kallsyms": symbols}, "nft_compat", false, true},
		"no such module":         {map[string]string{"proc/kallsyms": symbols, "proc/modules": "ip_set_hash_ip 1 1 - Live 0x0\n"}, "ip_set", false, true},
		"no list of symbols":     {map[string]string{"proc/modules": "x 1 1 - Live 0x0\n"}, "ip_set", false, false},
		"empty list of symbols":  {map[string]string{"proc/kallsyms": ""}, "ip_set", false, false},
		"a part without symbols": {map[string]string{"proc/kallsyms": symbols}, "dummy", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range tt.files {
				file = filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			k := &kernelParts{root: root}
			for range 2 { // looked up, and kept
				if k.has(tt.part) != tt.has {
					t.Errorf("has %s: %v", tt.part, !tt.has)
				}
				reason, certain := k.why(tt.part)
				if certain != tt.certain || (reason == "") != tt.has {
					t.Errorf("why: %q, certain: %v", reason, certain)
				}
			}
		})
	}
}

// BenchmarkSymbols: what the last resort costs.
func BenchmarkSymbols(b *testing.B) {
	for b.Loop() {
		if _, err := partsOfSymbols("/proc/kallsyms"); err != nil {
			b.Skip(err)
		}
	}
}
