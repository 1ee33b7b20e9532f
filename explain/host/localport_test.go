package host

import "testing"

func TestLocalPorts(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		missing    string
		port       uint16
		gives      bool
	}{
		{"in the range", "net.ipv4.ip_local_port_range = 32768\t60999\nnet.ipv4.ip_local_reserved_ports = \n", "", 32768, true},
		{"below", "net.ipv4.ip_local_port_range = 32768\t60999\nnet.ipv4.ip_local_reserved_ports = \n", "", 32767, false},
		{"the last one", "net.ipv4.ip_local_port_range = 1024 30000\nnet.ipv4.ip_local_reserved_ports =\n", "", 30000, true},
		{"reserved", "net.ipv4.ip_local_port_range = 1024 65000\nnet.ipv4.ip_local_reserved_ports = 8080,30000-32767\n", "", 31000, false},
		{"one reserved port", "net.ipv4.ip_local_port_range = 1024 65000\nnet.ipv4.ip_local_reserved_ports = 8080,30000-32767\n", "", 8080, false},
		{"between reserved ones", "net.ipv4.ip_local_port_range = 1024 65000\nnet.ipv4.ip_local_reserved_ports = 8080,30000-32767\n", "", 8081, true},
		{"reserved ones not captured", "net.ipv4.ip_local_port_range = 1024 65000\n", LocalReservedPorts, 0, false},
		{"range not captured", "net.ipv4.ip_local_reserved_ports = \n", LocalPortRange, 0, false},
		{"range cannot be read", "net.ipv4.ip_local_port_range = 1024\nnet.ipv4.ip_local_reserved_ports = \n", LocalPortRange, 0, false},
		{"no number", "net.ipv4.ip_local_port_range = 1 x\nnet.ipv4.ip_local_reserved_ports = \n", LocalPortRange, 0, false},
		{"reserved ones cannot be read", "net.ipv4.ip_local_port_range = 1 9\nnet.ipv4.ip_local_reserved_ports = 1-2-3\n", LocalReservedPorts, 0, false},
	} {
		h := &Host{}
		if _, err := ParseSysctls(h, tt.text, "sysctl.txt"); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		ports, missing := h.LocalPorts()
		if missing != tt.missing {
			t.Errorf("%s: %q is missing, want %q", tt.name, missing, tt.missing)
		}
		if got := ports.Gives(tt.port); missing == "" && got != tt.gives {
			t.Errorf("%s: gives %d = %t", tt.name, tt.port, got)
		}
	}
}
