// Package kernel writes tables of nf_tables: it turns what explain/nft holds as data into messages of netlink, and sends
// many of them as one transaction. What it wrote, explain/nft reads back as the same data.
//
// It asks the kernel for nothing before it writes, so that a change costs what the change is worth, however much else the
// tables hold.
package kernel
