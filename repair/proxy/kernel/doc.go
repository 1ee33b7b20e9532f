// Package kernel writes tables of nf_tables: it turns what explain/nft holds as data into messages of netlink, and sends
// many of them as one transaction. What it wrote, explain/nft reads back as the same data.
//
// It asks the kernel for nothing before it writes a change, so that one costs what it is worth, however much else the tables
// hold. Only before a table is made anew it asks whether there is one.
package kernel
