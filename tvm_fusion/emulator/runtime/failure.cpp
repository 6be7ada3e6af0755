// The text of a report: what, in which kernel, in which line of its source, by which thread.
#include <cstdarg>
#include <cstdio>

#include "runtime.h"

namespace emulator {

std::string text(const char* format, ...) {
  char buffer[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

static std::string quote_line(const std::string& source, int line) {
  size_t begin = 0;
  for (int i = 1; i < line; ++i) {
    begin = source.find('\n', begin);
    if (begin == std::string::npos) return "";
    ++begin;
  }
  const size_t end = source.find('\n', begin);
  std::string found = source.substr(begin, end == std::string::npos ? end : end - begin);
  const size_t first = found.find_first_not_of(" \t");
  found = first == std::string::npos ? "" : found.substr(first);
  return found.size() > 200 ? found.substr(0, 200) + "..." : found;
}

std::string describe(const Launch& launch, const Failure& failure) {
  std::string all = failure.message + text("\n  kernel %s", launch.kernel->name.c_str());
  if (failure.in_thread) {
    all += text(", block (%u,%u,%u), thread (%u,%u,%u)", failure.block[0], failure.block[1],
                failure.block[2], failure.thread[0], failure.thread[1], failure.thread[2]);
  }
  const int line = failure.line ? failure.line : source_line(failure.address);
  if (line > 0) {
    all += text("\n  line %d: ", line) + quote_line(launch.kernel->module->source, line);
  }
  return all;
}

}  // namespace emulator
