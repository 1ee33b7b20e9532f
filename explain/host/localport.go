package host

import (
	"strconv"
	"strings"
)

// LocalPorts are the ports that the kernel gives to sockets that ask for any: those of outgoing connections.
type LocalPorts struct {
	Min, Max uint16
	// Reserved are left out of the range.
	Reserved [][2]uint16
	// Range and Excepted are where the two sysctls were read.
	Range, Excepted Evidence
}

// The sysctls that hold the range and its exceptions, for both families.
const (
	LocalPortRange     = "net.ipv4.ip_local_port_range"
	LocalReservedPorts = "net.ipv4.ip_local_reserved_ports"
)

// LocalPorts reads net.ipv4.ip_local_port_range and ip_local_reserved_ports. missing names the first of them that was
// not captured or cannot be read, and is empty when both are known.
func (h *Host) LocalPorts() (ports LocalPorts, missing string) {
	text, where, ok := h.Sysctl(LocalPortRange)
	bounds := strings.Fields(text)
	if !ok || len(bounds) != 2 {
		return LocalPorts{}, LocalPortRange
	}
	low, errLow := strconv.ParseUint(bounds[0], 10, 16)
	high, errHigh := strconv.ParseUint(bounds[1], 10, 16)
	if errLow != nil || errHigh != nil {
		return LocalPorts{}, LocalPortRange
	}
	ports.Min, ports.Max, ports.Range = uint16(low), uint16(high), where
	text, where, ok = h.Sysctl(LocalReservedPorts)
	if !ok {
		return LocalPorts{}, LocalReservedPorts
	}
	ports.Excepted = where
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		reserved, ok := portsOf(part)
		if !ok {
			return LocalPorts{}, LocalReservedPorts
		}
		ports.Reserved = append(ports.Reserved, reserved)
	}
	return ports, ""
}

// portsOf reads "8080" or "30000-32767".
func portsOf(s string) (ports [2]uint16, ok bool) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	low, errLow := strconv.ParseUint(first, 10, 16)
	high, errHigh := strconv.ParseUint(last, 10, 16)
	return [2]uint16{uint16(low), uint16(high)}, errLow == nil && errHigh == nil
}

// Gives tells whether an outgoing connection may get this port.
func (p *LocalPorts) Gives(port uint16) bool {
	if port < p.Min || port > p.Max {
		return false
	}
	for _, r := range p.Reserved {
		if r[0] <= port && port <= r[1] {
			return false
		}
	}
	return true
}
