// Package uml runs scripts in User-Mode Linux: a kernel of its own, as an ordinary process, on this machine's file
// system. Its parts are modules that nobody has loaded yet, which the kernel of a test machine rarely offers, and it
// has IPVS.
package uml
