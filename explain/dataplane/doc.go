// Package dataplane knows what each way of serving Services programs into the kernel: how its chains are named, how
// frontends and backends show in its rules, and what a partial capture of it may be completed with. One file per
// dataplane. It says what is there, not what ought to be.
//
// The package is pure.
package dataplane
