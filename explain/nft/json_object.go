package nft

import (
	"strconv"
	"strings"
	"time"
)

// readObject reads a named object. Its text is what nft prints between the braces (obj_print_data).
func (j *jsonReader) readObject(v jsonValue, kind string) {
	t := j.within(v, "table")
	if t == nil {
		return
	}
	o := Object{
		Kind: kind, Name: strings.Clone(v.text("name")), Comment: strings.Clone(v.text("comment")),
		Handle: uintMember(v, "handle"), Line: j.line,
	}
	switch kind {
	case "counter":
		o.Text = "packets " + numberText(v, "packets") + " bytes " + numberText(v, "bytes")
	case "quota":
		q := Quota{Bytes: uintMember(v, "bytes"), Used: uintMember(v, "used"), Over: boolMember(v, "inv")}
		p := printer{}
		p.quota(&q)
		o.Text = strings.TrimPrefix(string(p.b), "quota ")
	case "limit":
		l, err := readLimit(v)
		if err != nil {
			j.problem(v.raw(), "%s", err)
			break
		}
		p := printer{}
		p.rate(l)
		o.Text = string(p.b)
	case "secmark":
		o.Text = `"` + v.text("context") + `"`
	case "ct helper":
		o.Text = `type "` + v.text("type") + `" protocol ` + wordOrNumber(v, "protocol") + "\nl3proto " + v.text("l3proto")
	case "ct timeout":
		o.Text = "protocol " + wordOrNumber(v, "protocol") + "\nl3proto " + v.text("l3proto") + "\npolicy = { "
		if policy, ok := v.member("policy"); ok && policy.kind() == jsonObject {
			sep := ""
			for state := range policy.children {
				o.Text += sep + state.key() + " : " + state.str()
				sep = ", "
			}
		}
		o.Text += " }"
	case "ct expectation":
		ms := min(uintMember(v, "timeout"), uint64(longestDuration))
		o.Text = "protocol " + wordOrNumber(v, "protocol") + "\ndport " + numberText(v, "dport") + "\ntimeout " +
			string(appendDuration(nil, time.Duration(ms)*time.Millisecond)) + "\nsize " + numberText(v, "size") +
			"\nl3proto " + v.text("l3proto")
	case "synproxy":
		o.Text = synproxyText(v, "\n")
	default:
		j.problem(v.raw(), "how a %s is printed is not known", kind)
	}
	j.objects.add(t, o)
}

func numberText(v jsonValue, name string) string { return strconv.FormatUint(uintMember(v, name), 10) }

// wordOrNumber is a member that is one or the other, such as a protocol.
func wordOrNumber(v jsonValue, name string) string {
	if m, ok := v.member(name); ok {
		return strings.Clone(m.str())
	}
	return ""
}

// synproxyText is a synproxy statement on a line, or the body of an object. A body has both flags on one line, with a
// blank between them that stays where one is not set.
func synproxyText(v jsonValue, sep string) string {
	var parts []string
	if sep == " " {
		parts = append(parts, "synproxy")
	}
	if has(v, "mss") {
		parts = append(parts, "mss "+numberText(v, "mss"))
	}
	if has(v, "wscale") {
		parts = append(parts, "wscale "+numberText(v, "wscale"))
	}
	timestamp, sack := "", ""
	for _, f := range v.texts("flags") {
		switch f {
		case "timestamp":
			timestamp = f
		case "sack-perm":
			sack = f
		}
	}
	if sep != " " {
		if timestamp != "" || sack != "" {
			parts = append(parts, timestamp+" "+sack)
		}
		return strings.Join(parts, sep)
	}
	for _, f := range []string{timestamp, sack} {
		if f != "" {
			parts = append(parts, f)
		}
	}
	return strings.Join(parts, sep)
}

// logText is a log statement as printed (log_stmt_print).
func logText(v jsonValue) string {
	text := "log"
	if m, ok := v.member("prefix"); ok {
		text += ` prefix "` + m.str() + `"`
	}
	for _, name := range []string{"group", "snaplen", "queue-threshold"} {
		if has(v, name) {
			text += " " + name + " " + numberText(v, name)
		}
	}
	if level := v.text("level"); level != "" && level != "warn" {
		text += " level " + level
	}
	var tcp []string
	others := ""
	for _, f := range v.texts("flags") {
		if option, ok := strings.CutPrefix(f, "tcp "); ok {
			tcp = append(tcp, option)
			continue
		}
		others += " flags " + f
	}
	if len(tcp) > 0 {
		text += " flags tcp " + strings.Join(tcp, ",")
	}
	return text + others
}

// lastText is when a rule was last met. That is a counter of a kind: Rule.Text has it without the time.
func lastText(v jsonValue) string {
	if !has(v, "used") {
		return "last used never"
	}
	ms := min(uintMember(v, "used"), uint64(longestDuration))
	return "last used " + string(appendDuration(nil, time.Duration(ms)*time.Millisecond))
}
