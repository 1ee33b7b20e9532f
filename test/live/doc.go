// Package live holds svcnet against nodes that really run: what it says of them beside what connections meet, and
// what reading does to them, which is nothing. The nodes are those of package lab; the program is the one that users
// run.
package live
