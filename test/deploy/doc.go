// Package deploy holds the manifests of folder deploy against the types of the API and against a real API server.
package deploy
