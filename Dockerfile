# The program and nothing else. Release builds put a static binary for each platform beside this file; by hand:
#
#   CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -ldflags "-s -w" -o linux/amd64/ ./cmd/kubectl-svcnet
#   docker build --build-arg TARGETPLATFORM=linux/amd64 -t svcnet .
FROM scratch
ARG TARGETPLATFORM
COPY ${TARGETPLATFORM}/kubectl-svcnet /kubectl-svcnet
# Root: reading a node's rules needs it.
USER 0:0
ENTRYPOINT ["/kubectl-svcnet"]
