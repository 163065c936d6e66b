// Reads what a program hands to the driver as code: names from PTX text; binaries (cubin, fatbin) are
// recognised and taken as they are.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "emulator/cuda/cuda_api.h"
#include "emulator/cuda/objects.h"

namespace tranche::emulator::cuda {

inline constexpr size_t kImageBytesMax = size_t{256} << 20;

// Kernels (.entry) and module-scope variables (.global, .const) of a PTX text.
Image parse_ptx(std::string_view text);

// `code` points to a PTX text that ends in a zero byte, or to a binary.
CUresult read_image(const void* code, std::shared_ptr<const Image>& image);

// The bytes of a file with code, with a zero byte after them.
CUresult read_image_file(const char* path, std::string& bytes);

}  // namespace tranche::emulator::cuda
