// Package deploy holds the files of folder deploy, which others' tools read, against the types of the API, a real API server
// and what the program has; each does what it says when it is run against a stand-in of that tool. Troubleshoot's own library
// reads its spec in test/troubleshoot, a module of its own.
package deploy
