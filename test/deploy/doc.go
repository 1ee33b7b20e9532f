// Package deploy tests the files of folder deploy, which others' tools read: what they run is what this program has, and
// each does what it says when it is run against a stand-in of that tool. Troubleshoot's own library reads its spec in
// test/troubleshoot, a module of its own.
package deploy
