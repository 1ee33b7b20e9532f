package netfilter

// HiddenIfaces stands for the -i and -o of a rule that was listed by `iptables -L` without -v, which does not
// show them: "ACCEPT all -- anywhere anywhere" may well be for lo alone. All rules of a listing share the one
// question, so that a walk splits once.
type HiddenIfaces struct{ File string }

// Test is undecided.
func (m *HiddenIfaces) Test(*Kernel, Hook, *Packet) Answer {
	return Maybe(Fact{
		Key:     "hidden interfaces " + m.File,
		Yes:     "no rule listed without -v tests an interface",
		No:      "the rules listed without -v test interfaces",
		Because: "`iptables -L` without -v does not show -i and -o",
	})
}
