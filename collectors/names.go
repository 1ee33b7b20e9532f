package collectors

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/client-go/rest"
)

// namesAtMost is how many names are asked for: more than that nobody looks through.
const namesAtMost = 500

// Names are the names of objects, in the server's order, for completing them in a shell: one request, of which the server
// sends no more than metadata. The resource is "nodes", or "services" or "pods" of a namespace.
func (a *API) Names(ctx context.Context, resource, namespace string) ([]string, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	r := c.rest.Get().AbsPath("/api/v1")
	if namespace != "" {
		r = r.Namespace(namespace)
	}
	r = r.Resource(resource).Param("limit", fmt.Sprint(namesAtMost)).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	return namesOf(ctx, r)
}

func namesOf(ctx context.Context, r *rest.Request) ([]string, error) {
	body, err := r.MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the answer is no list: %w", err)
	}
	var out []string
	for _, item := range list.Items {
		out = append(out, item.Metadata.Name)
	}
	return out, nil
}
