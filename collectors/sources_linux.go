package collectors

// nodeSources is the table of what is read of a node's network namespace, by name. Rules stand first: they change
// most often, and what is read with them should be of the same moment.
var nodeSources = []source{
	{name: "iptables", read: readIPTables, mark: markIPTables},
	{name: "nft", read: readNFT, mark: markNFT},
	{name: "ipset", read: readIPSets},
	{name: "ipvs", read: readIPVS},
	{name: "addr", read: readAddrs},
	{name: "route", read: readRoutes},
	{name: "rule", read: readRules},
	{name: "bridge", read: readBridge},
	{name: "sysctl", read: readSysctls},
	{name: "conntrack", read: readConntrack},
	{name: "conntrack-stats", read: readFlowStats},
	{name: "recent", read: readRecent},
	{name: "socket", read: readSockets},
	{name: "uname", read: readUname},
	{name: "tools", read: readTools},
}
