package host

import "strings"

// BridgeCallsSysctl is the sysctl that has all bridges hand what they switch to the rules of a family, 4 or 6.
func BridgeCallsSysctl(family int) string {
	if family == 6 {
		return "net.bridge.bridge-nf-call-ip6tables"
	}
	return "net.bridge.bridge-nf-call-iptables"
}

// CallsRules tells whether a bridge hands what it switches to the rules of a family, 4 or 6. The module br_netfilter does
// so (br_nf_pre_routing of Linux 6.18), for all bridges by a sysctl, which is there while the module is loaded, or for one
// by a setting of its own. For a bridge that is nil the answer rests on the sysctl.
func (h *Host) CallsRules(bridge *Link, family int) Finding {
	name := BridgeCallsSysctl(family)
	if ev, absent := h.SysctlAbsent(name); absent {
		return Finding{Is: No, Because: "br_netfilter is not loaded: there is no " + name, Evidence: ev}
	}
	value, ev, known := h.Sysctl(name)
	if !known {
		return Finding{Is: Unknown, Because: name + " was not captured"}
	}
	f := Finding{Is: Yes, Because: name + " = " + value, Evidence: ev}
	if strings.TrimSpace(value) != "0" {
		return f
	}
	own := Unknown
	if bridge != nil {
		own = bridge.CallsIPTables
		if family == 6 {
			own = bridge.CallsIP6Tables
		}
	}
	if own == Yes {
		return Finding{Is: Yes, Because: "bridge " + bridge.Name + " is set to ask the rules itself", Evidence: bridge.Evidence}
	}
	f.Is = No
	return f
}
