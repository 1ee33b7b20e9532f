package relay

import (
	"encoding/hex"
	"net/netip"
	"testing"
)

// The examples are of the specification's own form: the first line of section 2.1, and binary headers put together by
// hand after section 2.2.
func TestHeader(t *testing.T) {
	for _, tt := range []struct {
		version       HeaderVersion
		client, front string
		want          string
	}{
		{HeaderV1, "192.168.0.1:56324", "192.168.0.11:443", hex.EncodeToString([]byte("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"))},
		{HeaderV1, "[2001:db8::1]:1", "[fd00::2]:65535", hex.EncodeToString([]byte("PROXY TCP6 2001:db8::1 fd00::2 1 65535\r\n"))},
		{HeaderV2, "192.168.0.1:56324", "192.168.0.11:443", "0d0a0d0a000d0a515549540a" + "21" + "11" + "000c" + "c0a80001" + "c0a8000b" + "dc04" + "01bb"},
		{HeaderV2, "[2001:db8::1]:1", "[fd00::2]:65535", "0d0a0d0a000d0a515549540a" + "21" + "21" + "0024" + "20010db8000000000000000000000001" + "fd000000000000000000000000000002" + "0001" + "ffff"},
		{NoHeader, "192.168.0.1:56324", "192.168.0.11:443", ""},
	} {
		got := tt.version.append(nil, netip.MustParseAddrPort(tt.client), netip.MustParseAddrPort(tt.front))
		if hex.EncodeToString(got) != tt.want {
			t.Errorf("version %d of %s: %x, want %s", tt.version, tt.client, got, tt.want)
		}
	}
}

func TestParseHeaderVersion(t *testing.T) {
	for text, want := range map[string]HeaderVersion{"v1": HeaderV1, "v2": HeaderV2, "none": NoHeader, "": NoHeader} {
		if got, err := ParseHeaderVersion(text); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := ParseHeaderVersion("v3"); err == nil {
		t.Error("v3 is taken")
	}
}
