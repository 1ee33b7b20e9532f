package collectors

// nodeSources is the table of what is read of a node's network namespace, by name. Rules stand first: they change
// most often, and what is read with them should be of the same moment.
var nodeSources = []source{
	{"iptables", readIPTables},
	{"nft", readNFT},
	{"ipset", readIPSets},
	{"ipvs", readIPVS},
	{"addr", readAddrs},
	{"route", readRoutes},
	{"rule", readRules},
	{"bridge", readBridge},
	{"sysctl", readSysctls},
	{"conntrack", readConntrack},
	{"conntrack-stats", readFlowStats},
	{"recent", readRecent},
	{"socket", readSockets},
	{"uname", readUname},
	{"tools", readTools},
}
