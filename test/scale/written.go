package scale

import (
	"bytes"
	"math/rand/v2"
)

// AsWritten makes of a save what kube-proxy would have written: chains in no order, because it goes through a map
// (in sorted order iptables-nft-save takes eight times as long to print them again). It leaves out the rule that names
// an accounting object, which iptables-restore does not make.
func AsWritten(save []byte) []byte {
	var lines, chains [][]byte
	r := rand.New(rand.NewPCG(1, 2))
	for line := range bytes.Lines(save) {
		if bytes.HasPrefix(line, []byte(":KUBE-")) {
			chains = append(chains, line)
			continue
		}
		r.Shuffle(len(chains), func(i, j int) { chains[i], chains[j] = chains[j], chains[i] })
		lines, chains = append(lines, chains...), nil
		if !bytes.Contains(line, []byte("-m nfacct")) {
			lines = append(lines, line)
		}
	}
	return bytes.Join(lines, nil)
}
