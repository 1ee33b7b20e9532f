// Package relay is the fallback proxy of nodes whose netfilter cannot be used: it takes connections to the addresses of
// Services itself and passes what is sent on to a backend, by the rules of package intent. It writes no rule.
//
// A Relay is given service ports (Update) and serves their frontends. It does its work in a few event loops, each a
// thread with an epoll instance of its own (loop_linux.go): a connection belongs to one loop from beginning to end, so
// that nothing of it needs a lock, and an idle one costs its two sockets and some hundred bytes. Data goes through one
// buffer of the loop, and through a pipe (splice) where much of it comes (conn_linux.go). Datagrams have sessions,
// one for each client of a frontend (datagram_linux.go).
//
// The parts that decide are the same on every system and know no socket: which frontend does what with which client
// (route.go, client.go), which backend a connection gets (choose.go, affinity.go, backend.go), what is told to the
// backend of the client (header.go). The relay itself runs on Linux only.
package relay
