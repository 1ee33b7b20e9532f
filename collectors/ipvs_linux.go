package collectors

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/svcnet/svcnet/collectors/snapshot"
)

// ipvsFile is to hold the virtual servers.
const ipvsFile = "ipvsadm-save.txt"

// readIPVS says whether IPVS is there at all, which its file tells without loading it.
func readIPVS(_ context.Context, p *place) []snapshot.Evidence {
	_, err := os.Stat("/proc/thread-self/net/ip_vs")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []snapshot.Evidence{absent(p.dir+ipvsFile, snapshot.IPVSSave, "the kernel has no ip_vs loaded")}
	case err != nil:
		return []snapshot.Evidence{couldNot(p.dir+ipvsFile, snapshot.IPVSSave, "IPVS", reasonOf(err))}
	}
	return []snapshot.Evidence{missed(p.dir+ipvsFile, snapshot.IPVSSave, snapshot.NotCollected,
		errors.New("read IPVS: ip_vs is loaded, and this version does not read virtual servers yet (give `ipvsadm -Sn` with -f)"))}
}
