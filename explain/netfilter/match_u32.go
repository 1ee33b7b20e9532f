package netfilter

// u32Match is -m u32: single bits of the packet. Listed as `u32 [!] "0x0>>0x16=0x1"`.
var u32Match = unevaluated("u32", "tests of single bits of a packet are not evaluated", func(l *listing) bool {
	if !l.word("u32") {
		return false
	}
	l.not()
	return l.quoted()
})
