// A launch: where its workspace is, which stream it goes to, and who waits meanwhile.
#include "run.hpp"

#include <cstdlib>
#include <memory>

#include "names.hpp"
#include "plans.hpp"

namespace tilewise::python {

namespace {

constexpr size_t kAlignment = 64;

struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
};

struct Site {
    void* workspace = nullptr;
    size_t workspace_bytes = 0;
    void* stream = nullptr;
    std::unique_ptr<void, Free> host_memory;
    Ref device_memory;  // the caller's allocator orders its reuse after this launch, on the same stream
};

tilewise_status launch_at(const Site& site, const Plan& plan, const Call& call) {
    if (call.op == TILEWISE_COMBINE)
        return tilewise_launch_combine(plan.c(), &call.combination, site.workspace, site.workspace_bytes, site.stream);
    return tilewise_launch(plan.c(), &call.attention, site.workspace, site.workspace_bytes, site.stream);
}

bool take_host_memory(size_t bytes, Site* site) {
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    site->host_memory.reset(std::aligned_alloc(kAlignment, rounded));
    site->workspace = site->host_memory.get();
    site->workspace_bytes = rounded;
    if (site->workspace == nullptr) PyErr_NoMemory();
    return site->workspace != nullptr;
}

bool take_device_memory(size_t bytes, const Call& call, Site* site) {
    if (call.allocate == nullptr) {
        PyErr_Format(PyExc_ValueError, "allocate: %zu bytes of workspace are needed on the GPU; a callable is expected",
                     bytes);
        return false;
    }
    site->device_memory = Ref(
        PyObject_CallFunction(call.allocate, "ni", static_cast<Py_ssize_t>(bytes), static_cast<int>(call.device.id)));
    TensorSource source;
    if (!site->device_memory || !read_tensor("allocate", site->device_memory.get(), Purpose::kLaunch, &source))
        return false;
    site->workspace = source.tensor.data;
    site->workspace_bytes = bytes;
    return true;
}

// Without a `stream` the current one of the library that the first tensor is of.
bool find_stream(const Call& call, Site* site) {
    if (call.stream != nullptr) {
        const Ref index(PyNumber_Index(call.stream));
        if (!index) {
            PyErr_Clear();
            return refuse_type("stream", "the address of a CUDA stream, an integer,", call.stream);
        }
        site->stream = PyLong_AsVoidPtr(index.get());
        return PyErr_Occurred() == nullptr;
    }
    if (call.api != nullptr) return call.api->current_stream(call.device.type, call.device.id, &site->stream) == 0;
    PyErr_Format(PyExc_ValueError, "stream: is needed, since %s does not tell its library's current stream",
                 call.device_source);
    return false;
}

bool launch_on_cpu(const Plan& plan, const Call& call) {
    Site site;
    if (plan.workspace_bytes() > 0 && !take_host_memory(plan.workspace_bytes(), &site)) return false;
    tilewise_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = launch_at(site, plan, call);
    Py_END_ALLOW_THREADS;
    return raise(status);
}

// A launch on a GPU returns after microseconds; giving up the GIL would cost more than it gives.
bool launch_on_gpu(const Plan& plan, const Call& call) {
    Site site;
    if (!find_stream(call, &site)) return false;
    if (plan.workspace_bytes() > 0 && !take_device_memory(plan.workspace_bytes(), call, &site)) return false;
    return raise(launch_at(site, plan, call));
}

}  // namespace

bool launch(const Call& call) {
    const std::shared_ptr<const Plan> plan = plan_of(call);
    if (plan == nullptr) return false;
    return call.device.type == dlpack::kCpu ? launch_on_cpu(*plan, call) : launch_on_gpu(*plan, call);
}

PyObject* run(const Arguments& arguments) {
    Call call;
    if (read_call(arguments, Purpose::kLaunch, &call) && launch(call)) Py_RETURN_NONE;
    rename_arguments(call.op);
    return nullptr;
}

PyObject* explain(const Arguments& arguments) {
    Call call;
    const bool is_read = read_call(arguments, Purpose::kPlan, &call);
    const std::shared_ptr<const Plan> plan = is_read ? plan_of(call) : nullptr;
    if (plan == nullptr) {
        rename_arguments(TILEWISE_FORWARD);  // here a cache is called k and v
        return nullptr;
    }
    return Py_BuildValue("(sssn)", tilewise_plan_kernel(plan->c()), tilewise_plan_text(plan->c()),
                         tilewise_plan_json(plan->c()), static_cast<Py_ssize_t>(plan->workspace_bytes()));
}

}  // namespace tilewise::python
