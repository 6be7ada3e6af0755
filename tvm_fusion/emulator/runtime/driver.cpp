// The functions of libcuda.so.1 and libcudart.so.13 that TVM's CUDA runtime calls.
//
// There is one device. Streams and events are in order and complete at once. CUDA graphs and
// tensor maps are refused. A failed launch throws the error that Python sees; elsewhere failures
// are returned as CUDA does.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <tvm/ffi/error.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime.h"

using emulator::config;
using emulator::Kernel;
using emulator::Module;

static std::string last_error = "no error";
static unsigned long launches;

[[noreturn]] static void raise(const std::string& message) {
  last_error = message;
  throw tvm::ffi::Error("tvm_fusion.EmulatorError", message, "");
}

#define PUBLIC __attribute__((visibility("default")))

// ------------------------------------------------------------------- for install.py and profile.py

extern "C" {
struct EmulatorSettings {
  int order;
  unsigned seed;
  int check, strict_shuffles;
  long profile_blocks;
  double time_limit_seconds;
  unsigned cores;
};
PUBLIC void emulator_configure(const EmulatorSettings* settings) {
  config.order = emulator::Order(settings->order);
  config.seed = settings->seed;
  config.check = settings->check;
  config.strict_shuffles = settings->strict_shuffles;
  config.profile_blocks = settings->profile_blocks;
  config.time_limit_seconds = settings->time_limit_seconds;
  config.cores = settings->cores;
}
PUBLIC void emulator_set_device(int major, int minor, unsigned shared_limit) {
  config.major = major;
  config.minor = minor;
  config.shared_limit = shared_limit;
}
PUBLIC unsigned long emulator_launches() { return launches; }
PUBLIC const char* emulator_profile() {
  static std::string json;
  json = emulator::profile_json();
  return json.c_str();
}
PUBLIC void emulator_reset_profile() { emulator::reset_profile(); }

// ---------------------------------------------------------------------------- driver: libcuda.so.1

CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  snprintf(name, size, "tvm_fusion emulator");
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** name) {
  *name = last_error.c_str();
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** name) { return cuGetErrorName({}, name); }

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  std::string error;
  Module* module = emulator::load_module(static_cast<const char*>(image), &error);
  if (!module) raise(error);
  *out = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}
// Compiled libraries stay loaded: a module of the same source takes the same one.
CUresult cuModuleUnload(CUmodule module) {
  delete reinterpret_cast<Module*>(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  std::string error;
  Kernel* kernel = emulator::find_kernel(reinterpret_cast<Module*>(module), name, &error);
  if (!kernel) {
    last_error = error;
    return CUDA_ERROR_NOT_FOUND;
  }
  *out = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  auto* kernel = reinterpret_cast<Kernel*>(function);
  if (value > int(config.shared_limit)) {
    raise(emulator::text("kernel %s asks for %d bytes of dynamic shared memory, more than the "
                         "device's %u", kernel->name.c_str(), value, config.shared_limit));
  }
  kernel->dynamic_limit = value;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* launch, CUfunction function, void** arguments,
                          void**) {
  auto* kernel = reinterpret_cast<Kernel*>(function);
  for (unsigned i = 0; i < launch->numAttrs; ++i) {
    const auto& attribute = launch->attrs[i];
    const auto& size = attribute.value.clusterDim;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && size.x * size.y * size.z > 1) {
      raise("kernel " + kernel->name + " uses thread block clusters, which the emulator does not "
            "support");
    }
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute.value.cooperative) {
      raise("kernel " + kernel->name + " is a cooperative launch, which the emulator does not "
            "support");
    }
  }
  const unsigned grid[3] = {launch->gridDimX, launch->gridDimY, launch->gridDimZ};
  const unsigned block[3] = {launch->blockDimX, launch->blockDimY, launch->blockDimZ};
  ++launches;
  const std::string error =
      emulator::launch(kernel, grid, block, launch->sharedMemBytes, arguments);
  if (!error.empty()) raise(error);
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  raise("the emulator does not support tensor maps (TMA)");
}

// ------------------------------------------------------------------------ runtime: libcudart.so.13

cudaError_t cudaMalloc(void** out, size_t bytes) {
  emulator::Buffer* buffer = emulator::allocate(bytes);
  if (!buffer) return cudaErrorMemoryAllocation;
  *out = buffer->begin;
  return cudaSuccess;
}
cudaError_t cudaFree(void* begin) {
  return !begin || emulator::release(begin) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMallocHost(void** out, size_t bytes) {
  *out = malloc(bytes);
  return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* begin) {
  free(begin);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t) {
  memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = *total = size_t(16) << 30;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  memset(properties, 0, sizeof *properties);
  strcpy(properties->name, "tvm_fusion emulator");
  properties->totalGlobalMem = size_t(16) << 30;
  properties->major = config.major;
  properties->minor = config.minor;
  properties->warpSize = 32;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7FFFFFFF; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(config.shared_limit); break;
    case cudaDevAttrComputeCapabilityMajor: *value = config.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = config.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = 108; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    case cudaDevAttrL2CacheSize: *value = 40 << 20; break;
    case cudaDevAttrClockRate: *value = 1410000; break;
    default: *value = 0;
  }
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) { return "an error of the tvm_fusion emulator"; }
const char* cudaGetErrorString(cudaError_t) { return last_error.c_str(); }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  raise("the emulator does not support CUDA graphs");
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
}
