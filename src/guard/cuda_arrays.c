// Arrays and mipmapped arrays: how the driver lays them out is its own, so their size is estimated, then
// measured.
#include "guard/charge.h"
#include "guard/cuda_wrappers.h"
#include "guard/devices.h"
#include "guard/real_library.h"

enum { ROW_STEP = 512, MOST_LEVELS = 32 };

// Bytes of one element by the number of its format in the public header; 16 for what is newer than this list.
static uint64_t format_bytes(int format) {
  switch (format) {
    case 0x01:
    case 0x08:
      return 1;
    case 0x02:
    case 0x09:
    case 0x10:
      return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
      return 4;
    default:
      return 16;
  }
}

static bool level_bytes(uint64_t width, uint64_t height, uint64_t depth, uint64_t element, uint64_t* bytes) {
  uint64_t row = 0;
  if (__builtin_mul_overflow(width == 0 ? 1 : width, element, &row) || row > UINT64_MAX - ROW_STEP)
    return false;
  row = (row + ROW_STEP - 1) / ROW_STEP * ROW_STEP;
  return !__builtin_mul_overflow(row, height == 0 ? 1 : height, &row) &&
         !__builtin_mul_overflow(row, depth == 0 ? 1 : depth, bytes) && *bytes <= UINT64_MAX - BLOCK_PAGE;
}

static uint64_t estimate(const CUDA_ARRAY3D_DESCRIPTOR* array, unsigned levels) {
  uint64_t width = array->width, height = array->height, depth = array->depth, sum = 0;
  const uint64_t element = format_bytes(array->format) * array->channels;
  for (unsigned level = 0; level < levels && level < MOST_LEVELS; ++level) {
    uint64_t bytes = 0;
    if (!level_bytes(width, height, depth, element, &bytes)) return UINT64_MAX;
    if (__builtin_add_overflow(sum, bytes, &sum) || sum > UINT64_MAX - BLOCK_PAGE) return UINT64_MAX;
    width = width > 1 ? width / 2 : width;
    height = height > 1 ? height / 2 : height;
  }
  return (sum + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
}

#define CREATE(array, bytes, undo, call)                                                        \
  const uint64_t size = bytes;                                                                  \
  struct Measured measured;                                                                     \
  const CUresult begun = measured_begin(&measured, gpu_of_current_context(), size);             \
  if (size <= BLOCK_PAGE) measured_anywhere();                                                  \
  if (begun != CUDA_SUCCESS) return begun;                                                      \
  const CUresult result = call;                                                                 \
  if (measured_end(&measured, result == CUDA_SUCCESS) || result != CUDA_SUCCESS) return result; \
  undo(*array);                                                                                 \
  return CUDA_ERROR_OUT_OF_MEMORY

static uint64_t estimate_flat(const CUDA_ARRAY_DESCRIPTOR* flat) {
  if (flat == 0) return 0;
  const CUDA_ARRAY3D_DESCRIPTOR array = {flat->width, flat->height, 0, flat->format, flat->channels, 0};
  return estimate(&array, 1);
}

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  REAL(cuArrayCreate_v2)
  CREATE(array, estimate_flat(descriptor), cuArrayDestroy, real(array, descriptor));
}

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  REAL(cuArray3DCreate_v2)
  CREATE(array, descriptor == 0 ? 0 : estimate(descriptor, 1), cuArrayDestroy, real(array, descriptor));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned levels) {
  REAL(cuMipmappedArrayCreate)
  CREATE(array, descriptor == 0 ? 0 : estimate(descriptor, levels), cuMipmappedArrayDestroy,
         real(array, descriptor, levels));
}

// The first API's, with 32-bit sizes.
CUresult cuArrayCreate(CUarray* array, const uint32_t* descriptor) {
  REAL(cuArrayCreate)
  CUDA_ARRAY3D_DESCRIPTOR wide = {0};
  if (descriptor != 0) {
    wide = (CUDA_ARRAY3D_DESCRIPTOR){descriptor[0], descriptor[1], 0, (int)descriptor[2], descriptor[3], 0};
  }
  CREATE(array, estimate(&wide, 1), cuArrayDestroy, real(array, descriptor));
}

CUresult cuArray3DCreate(CUarray* array, const uint32_t* descriptor) {
  REAL(cuArray3DCreate)
  CUDA_ARRAY3D_DESCRIPTOR wide = {0};
  if (descriptor != 0) {
    wide = (CUDA_ARRAY3D_DESCRIPTOR){descriptor[0],      descriptor[1], descriptor[2],
                                     (int)descriptor[3], descriptor[4], 0};
  }
  CREATE(array, estimate(&wide, 1), cuArrayDestroy, real(array, descriptor));
}

#define DESTROY(call)                                                                      \
  struct Measured measured;                                                                \
  if (measured_begin(&measured, gpu_of_current_context(), 0) != CUDA_SUCCESS) return call; \
  const CUresult result = call;                                                            \
  measured_end(&measured, result == CUDA_SUCCESS);                                         \
  return result

CUresult cuArrayDestroy(CUarray array) {
  REAL(cuArrayDestroy)
  DESTROY(real(array));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  REAL(cuMipmappedArrayDestroy)
  DESTROY(real(array));
}
