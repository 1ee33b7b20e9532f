package nft

// Numbers of the kernel's interface that are read here, each named after its name in include/uapi/linux/netfilter/
// nf_tables.h (and its neighbours, where said so). They are written down because the package builds everywhere.

const nfnlSubsysNFTables = 10 // NFNL_SUBSYS_NFTABLES, nfnetlink.h

// Types of messages (NFT_MSG_*), within the subsystem.
const (
	nftMsgNewTable     = 0
	nftMsgNewChain     = 3
	nftMsgNewRule      = 6
	nftMsgNewSet       = 9
	nftMsgNewSetElem   = 12
	nftMsgNewGen       = 15
	nftMsgNewObj       = 18
	nftMsgNewFlowtable = 22
)

// Families (NFPROTO_*, include/uapi/linux/netfilter.h).
const (
	nfprotoInet   = 1
	nfprotoIPv4   = 2
	nfprotoARP    = 3
	nfprotoNetdev = 5
	nfprotoBridge = 7
	nfprotoIPv6   = 10
)

// Tables (NFTA_TABLE_*, NFT_TABLE_F_*).
const (
	nftaTableName     = 1
	nftaTableFlags    = 2
	nftaTableHandle   = 4
	nftaTableUserdata = 6

	nftTableDormant = 1
	nftTableOwner   = 2
	nftTablePersist = 4 // of a table with an owner, which it outlives
)

// Chains (NFTA_CHAIN_*, NFTA_HOOK_*, NFT_CHAIN_*).
const (
	nftaChainTable    = 1
	nftaChainHandle   = 2
	nftaChainName     = 3
	nftaChainHook     = 4
	nftaChainPolicy   = 5
	nftaChainType     = 7
	nftaChainFlags    = 10
	nftaChainUserdata = 12

	nftaHookNum      = 1
	nftaHookPriority = 2
	nftaHookDev      = 3
	nftaHookDevs     = 4
	nftaDeviceName   = 1
	// Of devices whose names begin so (NFTA_DEVICE_PREFIX, since 6.16).
	nftaDevicePrefix = 2

	nftChainOffload = 1 << 1
	nftChainBinding = 1 << 2
)

// Rules and expressions (NFTA_RULE_*, NFTA_EXPR_*, NFTA_LIST_*).
const (
	nftaRuleTable       = 1
	nftaRuleChain       = 2
	nftaRuleHandle      = 3
	nftaRuleExpressions = 4
	nftaRuleUserdata    = 7

	nftaListElem = 1

	nftaExprName = 1
	nftaExprData = 2
)

// Sets (NFTA_SET_*, NFT_SET_*) and their elements (NFTA_SET_ELEM_*, NFT_SET_ELEM_*).
const (
	nftaSetTable       = 1
	nftaSetName        = 2
	nftaSetFlags       = 3
	nftaSetKeyType     = 4
	nftaSetKeyLen      = 5
	nftaSetDataType    = 6
	nftaSetDataLen     = 7
	nftaSetPolicy      = 8
	nftaSetDesc        = 9
	nftaSetTimeout     = 11
	nftaSetGCInterval  = 12
	nftaSetUserdata    = 13
	nftaSetObjType     = 15
	nftaSetHandle      = 16
	nftaSetExpr        = 17
	nftaSetExpressions = 18

	nftaSetDescSize = 1

	nftSetAnonymous = 0x1
	nftSetConstant  = 0x2
	nftSetInterval  = 0x4
	nftSetMap       = 0x8
	nftSetTimeout   = 0x10
	nftSetEval      = 0x20
	nftSetObject    = 0x40

	nftSetPolicyMemory = 1

	nftaSetElemListTable    = 1
	nftaSetElemListSet      = 2
	nftaSetElemListElements = 3

	nftaSetElemKey         = 1
	nftaSetElemData        = 2
	nftaSetElemFlags       = 3
	nftaSetElemTimeout     = 4
	nftaSetElemExpiration  = 5
	nftaSetElemUserdata    = 6
	nftaSetElemExpr        = 7
	nftaSetElemObjRef      = 9
	nftaSetElemKeyEnd      = 10
	nftaSetElemExpressions = 11

	nftSetElemIntervalEnd = 1
	nftSetElemCatchAll    = 2
)

// Data (NFTA_DATA_*, NFTA_VERDICT_*) and verdicts (NFT_*, NF_*).
const (
	nftaDataValue   = 1
	nftaDataVerdict = 2

	nftaVerdictCode  = 1
	nftaVerdictChain = 2

	nftDataVerdict = 0xffffff00 // NFT_DATA_VERDICT, the type of a verdict map's data

	nfDrop      = 0
	nfAccept    = 1
	nftContinue = -1
	nftBreak    = -2
	nftJump     = -3
	nftGoto     = -4
	nftReturn   = -5
)

// Registers (NFT_REG_*): four of 16 bytes, or sixteen of 4 bytes in the same place.
const (
	nftRegVerdict = 0
	nftReg1       = 1
	nftReg4       = 4
	nftReg32First = 8
	nftReg32Last  = 23
)

// Objects (NFTA_OBJ_*, NFT_OBJECT_*).
const (
	nftaObjName     = 2
	nftaObjType     = 3
	nftaObjData     = 4
	nftaObjHandle   = 6
	nftaObjUserdata = 8

	nftObjectCounter   = 1
	nftObjectQuota     = 2
	nftObjectCTHelper  = 3
	nftObjectLimit     = 4
	nftObjectTunnel    = 6
	nftObjectCTTimeout = 7
	nftObjectSecmark   = 8
	nftObjectCTExpect  = 9
	nftObjectSynproxy  = 10
)

// Flowtables (NFTA_FLOWTABLE_*, NFT_FLOWTABLE_*).
const (
	nftaFlowtableTable  = 1
	nftaFlowtableName   = 2
	nftaFlowtableHook   = 3
	nftaFlowtableHandle = 5
	nftaFlowtableFlags  = 7

	nftaFlowtableHookNum      = 1
	nftaFlowtableHookPriority = 2
	nftaFlowtableHookDevs     = 3

	nftFlowtableOffload = 1
	nftFlowtableCounter = 2
)

// familyOf is nft's word for a family, empty for one that is not known.
func familyOf(nfproto byte) Family {
	switch nfproto {
	case nfprotoInet:
		return Inet
	case nfprotoIPv4:
		return IP
	case nfprotoIPv6:
		return IP6
	case nfprotoARP:
		return ARP
	case nfprotoNetdev:
		return Netdev
	case nfprotoBridge:
		return Bridge
	}
	return ""
}

// hookOf is nft's word for a hook (NF_INET_*, NF_ARP_*, NF_NETDEV_*, NF_BR_*), empty for one that is not known.
func hookOf(f Family, number uint32) string {
	var names []string
	switch f {
	case ARP:
		names = []string{"input", "output", "forward"}
	case Netdev:
		names = []string{"ingress", "egress"}
	default:
		names = []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	}
	if number >= uint32(len(names)) {
		return ""
	}
	return names[number]
}
