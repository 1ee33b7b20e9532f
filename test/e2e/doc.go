// Package e2e asks the whole program what its users ask, through both of its front doors: the functions
// snapshot.Load and explain.Trace, and the command line. The evidence is real: reports of broken clusters
// (testdata/cases), command output as people paste it (testdata/seeds), recorded nodes (testdata/nodes), and
// input that is damaged or was never meant for us.
package e2e
