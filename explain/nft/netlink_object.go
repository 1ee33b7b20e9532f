package nft

import (
	"slices"
	"strconv"
	"strings"
)

// Named objects (NFTA_CT_HELPER_*, NFTA_CT_TIMEOUT_*, NFTA_CT_EXPECT_*, NFTA_SECMARK_*; the others have the attributes
// of their expressions).
const (
	nftaCTHelperName    = 1
	nftaCTHelperL3Proto = 2
	nftaCTHelperL4Proto = 3

	nftaCTTimeoutL3Proto = 1
	nftaCTTimeoutL4Proto = 2
	nftaCTTimeoutData    = 3

	nftaCTExpectL3Proto = 1
	nftaCTExpectL4Proto = 2
	nftaCTExpectDport   = 3
	nftaCTExpectTimeout = 4
	nftaCTExpectSize    = 5

	nftaSecmarkCtx = 1
)

// objectKind is nft's word for NFT_OBJECT_*, empty for one that is not known.
func objectKind(number uint32) string {
	switch number {
	case nftObjectCounter:
		return "counter"
	case nftObjectQuota:
		return "quota"
	case nftObjectCTHelper:
		return "ct helper"
	case nftObjectLimit:
		return "limit"
	case nftObjectTunnel:
		return "tunnel"
	case nftObjectCTTimeout:
		return "ct timeout"
	case nftObjectSecmark:
		return "secmark"
	case nftObjectCTExpect:
		return "ct expectation"
	case nftObjectSynproxy:
		return "synproxy"
	}
	return ""
}

// object reads a named object. Its body is that of nft's listing (obj_print_data).
func (d *netlinkDecoder) object(a *attributes) (Object, bool) {
	note := parseNotes(a[nftaObjUserdata])
	o := Object{Kind: objectKind(a.u32(nftaObjType)), Name: a.text(nftaObjName), Handle: a.u64(nftaObjHandle)}
	o.Comment = note.comment(0) // NFTNL_UDATA_OBJ_COMMENT
	b := parseAttributes(d.order, a[nftaObjData])
	p := printer{}
	switch a.u32(nftaObjType) {
	case nftObjectCounter:
		p.str("packets ")
		p.uint(b.u64(nftaCounterPackets))
		p.str(" bytes ")
		p.uint(b.u64(nftaCounterBytes))
	case nftObjectQuota:
		if b.u32(nftaQuotaFlags)&nftQuotaInverted != 0 {
			p.str("over ")
		}
		p.bytes(b.u64(nftaQuotaBytes))
		if used := b.u64(nftaQuotaConsumed); used != 0 {
			p.str(" used ")
			p.bytes(used)
		}
	case nftObjectLimit:
		p.rate(limitOf(&b))
	case nftObjectCTHelper:
		p.str(`type "`, b.text(nftaCTHelperName), `" protocol `, protocolName(b.u8(nftaCTHelperL4Proto)))
		p.str("\nl3proto ", string(familyOf(byte(b.u16(nftaCTHelperL3Proto)))))
	case nftObjectCTTimeout:
		p.str("protocol ", protocolName(b.u8(nftaCTTimeoutL4Proto)))
		p.str("\nl3proto ", string(familyOf(byte(b.u16(nftaCTTimeoutL3Proto)))))
		p.str("\npolicy = { ", d.timeouts(b.u8(nftaCTTimeoutL4Proto), b[nftaCTTimeoutData]), " }")
	case nftObjectCTExpect:
		p.str("protocol ", protocolName(b.u8(nftaCTExpectL4Proto)))
		// As the kernel gives it: nft 1.0.6 prints the number as it stands.
		p.str("\ndport ", strconv.Itoa(int(b.u16(nftaCTExpectDport))), "\ntimeout ")
		if t := b[nftaCTExpectTimeout]; len(t) == 4 {
			p.b = appendDuration(p.b, milliseconds(uint64(d.order.Uint32(t))))
		}
		p.str("\nsize ", strconv.Itoa(int(b.u8(nftaCTExpectSize))))
		p.str("\nl3proto ", string(familyOf(byte(b.u16(nftaCTExpectL3Proto)))))
	case nftObjectSecmark:
		p.str(`"`, b.text(nftaSecmarkCtx), `"`)
	case nftObjectSynproxy:
		flags := b.u32(nftaSynproxyFlags)
		var lines []string
		if flags&synproxyMSS != 0 {
			lines = append(lines, "mss "+strconv.Itoa(int(b.u16(nftaSynproxyMSS))))
		}
		if flags&synproxyWScale != 0 {
			lines = append(lines, "wscale "+strconv.Itoa(int(b.u8(nftaSynproxyWScale))))
		}
		if flags&(synproxyTimestamp|synproxySackPerm) != 0 {
			var timestamp, sack string
			if flags&synproxyTimestamp != 0 {
				timestamp = "timestamp"
			}
			if flags&synproxySackPerm != 0 {
				sack = "sack-perm"
			}
			lines = append(lines, timestamp+" "+sack)
		}
		p.str(strings.Join(lines, "\n"))
	default:
		d.problem("object "+o.Name, "its kind has the number "+decimalText(a.u32(nftaObjType))+", which is not known")
		if o.Kind == "" {
			return o, false
		}
	}
	o.Text = string(p.b)
	return o, true
}

func protocolName(number byte) string { return TypeProto.Text([]byte{number}) }

// timeoutNames are the states whose timeouts a policy names, by protocol, with what they are where it does not
// (net/netfilter/nf_conntrack_proto_tcp.c, nf_conntrack_proto_udp.c; nft's timeout_protocol).
var timeoutNames = map[byte][]struct {
	name     string
	standard uint32
}{
	6: {
		{"", 0}, {"syn_sent", 120}, {"syn_recv", 60}, {"established", 432000}, {"fin_wait", 120}, {"close_wait", 60},
		{"last_ack", 30}, {"time_wait", 120}, {"close", 10}, {"syn_sent2", 120}, {"retrans", 300}, {"unack", 300},
	},
	17: {{"", 0}, {"unreplied", 30}, {"replied", 180}},
}

// timeouts is the policy of a "ct timeout": the timeouts that are not the standard ones.
func (d *netlinkDecoder) timeouts(protocol byte, data []byte) string {
	var out []string
	names := timeoutNames[protocol]
	for kind, value := range eachAttribute(d.order, data) {
		if int(kind) < len(names) && kind > 0 && len(value) == 4 {
			n := uint32(value[0])<<24 | uint32(value[1])<<16 | uint32(value[2])<<8 | uint32(value[3])
			if n != names[kind].standard {
				out = append(out, names[kind].name+" : "+decimalText(n))
			}
		}
	}
	return strings.Join(out, ", ")
}

// flowtable reads a flowtable.
func (d *netlinkDecoder) flowtable(a *attributes) Flowtable {
	hook := parseAttributes(d.order, a[nftaFlowtableHook])
	flags := a.u32(nftaFlowtableFlags)
	x := Flowtable{
		Name: a.text(nftaFlowtableName), Handle: a.u64(nftaFlowtableHandle), Hook: hookOf(Netdev, hook.u32(nftaFlowtableHookNum)),
		Priority: int(int32(hook.u32(nftaFlowtableHookPriority))), Devices: d.devices(hook[nftaFlowtableHookDevs]),
		Offload: flags&nftFlowtableOffload != 0, Counter: flags&nftFlowtableCounter != 0,
	}
	return x
}

// devices are the names of a list, sorted as nft does.
func (d *netlinkDecoder) devices(data []byte) []string {
	var out []string
	for kind, name := range eachAttribute(d.order, data) {
		switch kind {
		case nftaDeviceName:
			out = append(out, zeroEnded(name))
		case nftaDevicePrefix:
			out = append(out, zeroEnded(name)+"*")
		}
	}
	slices.Sort(out)
	return out
}
