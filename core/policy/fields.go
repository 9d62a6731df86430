package policy

import (
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// field is one field of a typed variable: its type for the checker, and how to read it.
type field struct {
	name  string
	is    *types.Type
	about string // for the reference documentation
	get   func(any) ref.Val
}

// The types of the variables.
var (
	requestType   = types.NewObjectType("souk.Request")
	workerType    = types.NewObjectType("souk.Worker")
	resourcesType = types.NewObjectType("souk.Resources")
	countsType    = types.NewMapType(types.StringType, types.DoubleType)
	dynMapType    = types.NewMapType(types.StringType, types.DynType)
	textsType     = types.NewListType(types.StringType)
)

func numberField(name, about string, i int, of func(*workerValue) float64) field {
	return field{name, types.DoubleType, about,
		func(v any) ref.Val { w := v.(*workerValue); return w.numbers[i].boxNumber(of(w)) }}
}

func textField(name, about string, i int, of func(*cluster.Record) string) field {
	return field{name, types.StringType, about,
		func(v any) ref.Val { w := v.(*workerValue); return w.texts[i].boxText(of(w.of)) }}
}

// workerFields are the fields of worker.
func workerFields() []field {
	return []field{
		textField("id", "the worker's id", 0, func(r *cluster.Record) string { return string(r.Worker) }),
		textField("region", "its region", 1, func(r *cluster.Record) string { return string(r.Region) }),
		textField("state", "ready, cordoned or draining", 2, func(r *cluster.Record) string { return string(r.State) }),
		{"free", resourcesType, "what is neither granted nor held", func(v any) ref.Val {
			w := v.(*workerValue)
			w.free.now = w.of.Free()
			return &w.free
		}},
		{"capacity", resourcesType, "all that may be granted", func(v any) ref.Val {
			w := v.(*workerValue)
			w.capacity.now = w.of.Capacity
			return &w.capacity
		}},
		{"used", resourcesType, "granted and held", func(v any) ref.Val {
			w := v.(*workerValue)
			w.used.now = w.of.Used
			return &w.used
		}},
		numberField("machines", "machines that exist", 0,
			func(w *workerValue) float64 { return float64(w.of.Machines) }),
		numberField("starting", "machines on their way up", 1,
			func(w *workerValue) float64 { return float64(w.of.Starting) }),
		numberField("max_starting", "most that may be on their way up; 0: no limit", 2,
			func(w *workerValue) float64 { return float64(w.of.MaxStarting) }),
		numberField("backlog", "milliseconds of work that waits here, estimated", 3,
			func(w *workerValue) float64 { return float64(w.of.Backlog) }),
		{"apps", countsType, "machines here by app; 0 for an app that has none",
			func(v any) ref.Val { return v.(*workerValue).apps }},
		{"attributes", dynMapType, "what the worker says of itself: texts, numbers, true or false",
			func(v any) ref.Val { return v.(*workerValue).attributes }},
		{"images", textsType, "images it can start without a pull", func(v any) ref.Val {
			w := v.(*workerValue)
			if w.images == nil || !slices.Equal(w.imagesOf, w.of.Images) {
				w.imagesOf = w.of.Images
				w.images = types.NewStringList(types.DefaultTypeAdapter, w.of.Images)
			}
			return w.images
		}},
	}
}

// requestFields are the values that an expression can read of a request.
type requestFields struct {
	r *placement.Request
}

func requestNumberField(name, about string, i int, of func(*placement.Request) float64) field {
	return field{name, types.DoubleType, about,
		func(v any) ref.Val { q := v.(*requestValue); return q.numbers[i].boxNumber(of(q.of.r)) }}
}

func requestTextField(name, about string, i int, of func(*placement.Request) string) field {
	return field{name, types.StringType, about,
		func(v any) ref.Val { q := v.(*requestValue); return q.texts[i].boxText(of(q.of.r)) }}
}

// fieldsOfRequest are the fields of request.
func fieldsOfRequest() []field {
	return []field{
		requestTextField("app", "its app", 0, func(r *placement.Request) string { return r.App }),
		requestTextField("namespace", "its namespace", 1, func(r *placement.Request) string { return r.Namespace }),
		requestTextField("band", "free, batch, service or system", 2,
			func(r *placement.Request) string { return string(r.Scheduling.BandName()) }),
		requestTextField("image", "its image", 3, func(r *placement.Request) string { return r.Image }),
		requestTextField("gpu_kind", "the kind of GPU it wants; empty: any", 4,
			func(r *placement.Request) string { return r.GPUKind }),
		requestNumberField("priority", "within the band, 0 to 999", 0,
			func(r *placement.Request) float64 { return float64(r.Scheduling.Priority) }),
		requestNumberField("cpu", "thousandths of a core", 1,
			func(r *placement.Request) float64 { return float64(r.Resources.CPU) }),
		requestNumberField("memory", "MiB", 2,
			func(r *placement.Request) float64 { return float64(r.Resources.Memory) }),
		requestNumberField("disk", "MiB", 3, func(r *placement.Request) float64 { return float64(r.Resources.Disk) }),
		requestNumberField("ports", "listening ports", 4,
			func(r *placement.Request) float64 { return float64(r.Resources.Ports) }),
		requestNumberField("gpu", "thousandths of a GPU", 5,
			func(r *placement.Request) float64 { return float64(r.Resources.GPU) }),
		{"named", countsType, "the operator's own extras; 0 for one that it does not want",
			func(v any) ref.Val { return v.(*requestValue).named }},
		{"labels", dynMapType, "what it says of itself: texts, numbers, true or false",
			func(v any) ref.Val { return v.(*requestValue).labels }},
		{"regions", textsType, "regions it wants, nearest first; empty: any", func(v any) ref.Val {
			q := v.(*requestValue)
			if q.regions == nil {
				list := make([]string, len(q.of.r.Regions))
				for i, r := range q.of.r.Regions {
					list[i] = string(r)
				}
				q.regions = types.NewStringList(types.DefaultTypeAdapter, list)
			}
			return q.regions
		}},
	}
}

func amountField(name, about string, i int, of func(*cluster.Resources) int64) field {
	return field{name, types.DoubleType, about,
		func(v any) ref.Val { a := v.(*amounts); return a.boxes[i].boxNumber(float64(of(&a.now))) }}
}

// resourceFields are the fields of worker.free, worker.capacity and worker.used.
func resourceFields() []field {
	return []field{
		amountField("cpu", "thousandths of a core", 0, func(r *cluster.Resources) int64 { return r.CPU }),
		amountField("memory", "MiB", 1, func(r *cluster.Resources) int64 { return r.Memory }),
		amountField("disk", "MiB", 2, func(r *cluster.Resources) int64 { return r.Disk }),
		amountField("ports", "listening ports", 3, func(r *cluster.Resources) int64 { return r.Ports }),
		amountField("gpu", "thousandths of a GPU", 4, func(r *cluster.Resources) int64 { return r.GPU }),
		{"named", countsType, "the operator's own extras; 0 for one that is not there", func(v any) ref.Val {
			now := v.(*amounts).now
			return countsOf(func() map[string]int64 { return now.Named })
		}},
	}
}

// provider gives CEL the types of the variables, and leaves everything else to CEL.
type provider struct {
	types.Provider
	fields map[string]map[string]*types.FieldType
	names  map[string][]string
}

func newProvider() *provider {
	p := &provider{Provider: types.NewEmptyRegistry(), fields: map[string]map[string]*types.FieldType{},
		names: map[string][]string{}}
	for name, list := range map[string][]field{"souk.Request": fieldsOfRequest(), "souk.Worker": workerFields(),
		"souk.Resources": resourceFields()} {
		p.fields[name] = map[string]*types.FieldType{}
		for _, f := range list {
			p.fields[name][f.name] = &types.FieldType{
				Type:    f.is,
				IsSet:   func(any) bool { return true },
				GetFrom: func(v any) (any, error) { return f.get(v), nil },
			}
			p.names[name] = append(p.names[name], f.name)
		}
	}
	return p
}

func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if p.fields[name] == nil {
		return nil, false
	}
	return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
}

func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	return p.names[name], p.names[name] != nil
}

func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	f, ok := p.fields[name][field]
	return f, ok
}

func (p *provider) NewValue(name string, _ map[string]ref.Val) ref.Val {
	return types.NewErr("a %s cannot be made in an expression", name)
}
