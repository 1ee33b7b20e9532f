// Package cluster tests svcnet against real kubelets: nodes are read through real pods, from a kubeconfig alone.
package cluster
