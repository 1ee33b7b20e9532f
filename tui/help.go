package tui

// newHelp is every key that does something where it was asked for, made from the key map and nothing else.
func newHelp(of screen) *page {
	return newWhole("help", func(m *Model, width int) []row {
		var out []row
		section := func(title string, keys []binding) {
			if len(keys) == 0 {
				return
			}
			out = append(out, row{}.add(strong, title))
			for _, b := range keys {
				line := row{}.gap(2).cell(accent, m.theme.keyName(&b), 10).cell(plain, b.does(), 18).gap(1)
				indent := line.width()
				for _, l := range m.theme.wrap(faint, b.more, max(width-indent-1, 20)) {
					out = append(out, append(line, l...))
					line = row{}.gap(indent)
				}
				if b.more == "" {
					out = append(out, line)
				}
			}
			out = append(out, row{})
		}
		section("In "+of.title(m), of.keys(m))
		section("Everywhere", m.keys.everywhere())
		section("Moving", m.keys.moving())
		out = append(out, row{}.add(strong, "Signs"))
		for _, sign := range []struct {
			tone       tone
			sign, says string
		}{
			{good, "✓", "as it should be"}, {note, "·", "a remark"}, {warn, "!", "a warning"}, {bad, "✗", "an error"},
			{note, "?", "not known: something was not read"}, {faint, "–", "no proxy forwards this"},
		} {
			out = append(out, row{}.gap(2).cell(sign.tone, sign.sign, 10).add(plain, sign.says))
		}
		out = append(out, row{}, row{}.add(strong, "Columns"))
		for _, c := range [][2]string{
			{"BACKENDS", "ready ones that get connections / ready ones; behind + those that get connections and ought not to"},
			{"FRONTENDS", "the first address that clients dial, and how many more there are"},
			{"NEW/S", "new connections each second, as its rules count them (each counts the first packet of a connection) or its virtual servers (which the kernel adds up every two seconds). Empty where nothing counts, as in nftables mode, or nothing tells yet"},
		} {
			line := row{}.gap(2).cell(accent, c[0], 10)
			for _, l := range m.theme.wrap(plain, c[1], width-13) {
				out = append(out, append(line, l...))
				line = row{}.gap(12)
			}
		}
		return out
	})
}
