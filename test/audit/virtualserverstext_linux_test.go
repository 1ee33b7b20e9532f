package audit

import "testing"

// TestParseServers reads what /proc/net/ip_vs of Linux 6.1 looks like.
func TestParseServers(t *testing.T) {
	got, err := parseServers(`IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600701:0050 rr persistent 60000 FFFFFFFF
  -> 0AF40114:1F90      Masq    1      0          3         
  -> 0AF40314:1F90      Route   0      0          0         
UDP  [fd00:0096:0000:0000:0000:0000:0000:0703]:0035 sh 
  -> [fd00:0244:0001:0000:0000:0000:0000:0020]:14E9      Masq    1      0          0         
`)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"TCP 10.96.7.1:80":        "TCP 10.96.7.1:80 rr persistent 600 one packet false -> 10.244.1.20:8080 Masq 1 -> 10.244.3.20:8080 Route 0",
		"UDP [fd00:96::703]:53":   "UDP [fd00:96::703]:53 sh persistent 0 one packet false -> [fd00:244:1::20]:5353 Masq 1",
		"TCP 10.96.7.1:81 absent": "",
	} {
		text := ""
		if v := got[key]; v != nil {
			text = v.String()
		}
		if text != want {
			t.Errorf("%s: %q, want %q", key, text, want)
		}
	}
}
