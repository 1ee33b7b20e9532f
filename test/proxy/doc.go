// Package proxy tests the fallback proxy against what it did not write: the tables that it makes are read back from the
// kernel by nft, walked by package explain, and met by real connections in the lab beside and instead of a real kube-proxy.
package proxy
