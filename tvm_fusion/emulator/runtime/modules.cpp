// From CUDA source to something to call. Python compiles (compile.py); this file keeps what came.
//
// A module is compiled when one of its kernels is launched for the first time, and once more when
// one is launched with instrumentation for the first time: building a model stays quick, and check
// mode can be turned on and off between two calls.
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "runtime.h"

extern "C" {
// Set by install.py. The first writes the path of the compiled library, or an error, into `out`,
// and returns 0 on success; the second returns the source line of an offset, 0 if unknown.
int (*emulator_compile_callback)(const char* source, int instrumented, char* out, size_t size);
int (*emulator_line_callback)(const char* path, size_t offset);
// Writes the path of the source that compiled code was made of, and returns 0 if there is one.
int (*emulator_source_callback)(const void* code, size_t code_size, char* out, size_t size);
}

namespace emulator {

static const char kMagic[] = "// tvm_fusion emulator\n";

// The source of compiled code (a cubin, which is an ELF file), if it was exported on this machine.
static bool find_source(const char* image, std::string* source) {
  if (memcmp(image, ELFMAG, SELFMAG) != 0) return false;
  Elf64_Ehdr header;
  memcpy(&header, image, sizeof header);
  const size_t sections = header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
  const size_t segments = header.e_phoff + size_t(header.e_phnum) * header.e_phentsize;
  std::vector<char> path(4096);
  if (emulator_source_callback(image, std::max(sections, segments), path.data(), path.size())) {
    return false;
  }
  std::ifstream file(path.data());
  source->assign(std::istreambuf_iterator<char>(file), {});
  return file.good() || file.eof();
}

Module* load_module(const char* image, std::string* error) {
  const size_t magic = sizeof kMagic - 1;
  std::string source;
  if (strncmp(image, kMagic, magic) == 0) {
    source = image + magic;
  } else if (!find_source(image, &source)) {
    *error = "the module holds compiled GPU code, whose source this machine does not have: "
             "build it while the emulator is active";
    return nullptr;
  }
  auto* module = new Module;
  module->source = source;
  module->has_atomics = module->source.find("atomic") != std::string::npos;
  return module;
}

Kernel* find_kernel(Module* module, const char* name, std::string* error) {
  auto& kernel = module->kernels[name];
  if (!kernel) {
    kernel = std::make_unique<Kernel>();
    kernel->name = name;
    kernel->module = module;
  }
  if (module->source.find(kernel->name + "(") == std::string::npos) {
    *error = "no kernel " + kernel->name + " in the module";
    return nullptr;
  }
  return kernel.get();
}

static bool load_library(Module* module, bool instrumented, std::string* error) {
  Library& library = module->libraries[instrumented];
  if (library.handle) return true;
  std::vector<char> out(1 << 16);
  if (emulator_compile_callback(module->source.c_str(), instrumented, out.data(), out.size())) {
    *error = out.data();
    return false;
  }
  library.path = out.data();
  library.handle = dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle) *error = dlerror();
  return library.handle != nullptr;
}

const Code* code_of(Kernel* kernel, bool instrumented, std::string* error) {
  Code& code = kernel->code[instrumented];
  if (code.call) return &code;
  if (!load_library(kernel->module, instrumented, error)) return nullptr;
  auto symbol = [&](const char* suffix) {
    return dlsym(kernel->module->libraries[instrumented].handle, (kernel->name + suffix).c_str());
  };
  void* call = symbol("__call");
  if (!call) {
    *error = "no kernel " + kernel->name + " in the module";
    return nullptr;
  }
  code.bound = *static_cast<int*>(symbol("__bound"));
  code.signature = *static_cast<const char**>(symbol("__signature"));
  code.arguments = *static_cast<const char**>(symbol("__arguments"));
  char** shared = static_cast<char**>(symbol("__shared"));
  code.shared_begin = shared[0];
  code.shared_end = shared[1];
  code.call = reinterpret_cast<void (*)(void**)>(call);
  return &code;
}

int source_line(void* address) {
  Dl_info info;
  if (!address || !dladdr(address, &info) || !info.dli_fname) return 0;
  const char* base = static_cast<const char*>(info.dli_fbase);
  return emulator_line_callback(info.dli_fname, static_cast<const char*>(address) - base);
}

}  // namespace emulator
