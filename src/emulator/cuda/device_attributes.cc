#include "emulator/cuda/device_attributes.h"

#include <array>
#include <utility>

namespace tranche::emulator::cuda {
namespace {

constexpr int kAttributeMax = 143;

// Attributes that are the same on every board here. Those of features that the emulator lacks
// (multicast, fabric handles, sparse arrays, ...) say "no", whatever the real board says.
constexpr std::pair<int, int> kConstants[] = {
    {1, kMaxThreadsPerBlock},
    {2, 1024},
    {3, 1024},
    {4, 64},  // threads and dimensions of a block
    {5, 2147483647},
    {6, 65535},
    {7, 65535},  // dimensions of a grid
    {8, kSharedBytesPerBlock},
    {9, 65536},
    {10, 32},
    {11, 2147483647},  // shared, constant, warp, pitch
    {12, kRegisters},
    {14, 512},
    {15, 1},
    {17, 0},
    {18, 0},
    {19, 1},
    {20, 0},
    {21, 131072},
    {22, 131072},
    {23, 65536},
    {24, 16384},
    {25, 16384},
    {26, 16384},  // textures
    {27, 32768},
    {28, 32768},
    {29, 2048},
    {30, 512},
    {31, 1},
    {34, 0},
    {35, 0},
    {41, 1},
    {42, 32768},
    {43, 2048},
    {44, 1},
    {45, 32768},
    {46, 32768},
    {47, 8192},
    {48, 8192},
    {49, 32768},
    {51, 32},
    {52, 32768},
    {53, 32768},
    {54, 2046},
    {55, 32768},
    {56, 131072},
    {57, 65536},
    {58, 16384},
    {59, 16384},
    {60, 16384},  // surfaces
    {61, 32768},
    {62, 2048},
    {63, 32768},
    {64, 32768},
    {65, 2048},
    {66, 32768},
    {67, 32768},
    {68, 2046},
    {69, 268435456},
    {70, 131072},
    {71, 65000},
    {72, 2097120},
    {73, 32768},
    {74, 32768},
    {77, 32768},
    {78, 1},
    {79, 1},
    {80, 1},
    {82, kRegisters},
    {83, 1},
    {84, 0},
    {86, 0},
    {88, 0},
    {89, 1},
    {90, 1},
    {91, 1},
    {92, 1},
    {93, 1},
    {94, 1},
    {95, 1},
    {96, 0},
    {98, 0},
    {99, 1},
    {100, 0},
    {101, 0},
    {102, 1},
    {103, 1},
    {104, 0},
    {105, 0},
    {107, 0},
    {109, 0},
    {110, 0},
    {111, 1024},
    {112, 0},
    {113, 1},
    {114, 0},
    {115, 1},
    {116, 0},
    {117, 0},
    {118, 0},
    {119, 1},
    {121, 0},
    {122, 1},
    {123, 1},
    {124, 0},
    {125, 1},
    {126, 1},
    {127, 0},
    {128, 0},
    {129, 0},
    {130, 0},
    {131, -1},
    {132, 0},
    {133, 0},
    {134, 0},
    {135, 0},
    {136, 0},
    {137, 0},
    {138, 0},
    {141, 0},
    {142, 0},
    {143, 0},
};

int blocks_per_multiprocessor(const Board& board) {
  if (board.compute_major == 7) return 16;
  return board.compute_major == 8 && board.compute_minor == 9 ? 24 : 32;
}

// Attributes that differ from board to board; false if the number is not one of them.
bool board_attribute(const Board& board, const GpuIdentity& identity, int attribute, int& value) {
  const auto answer = [&value](uint32_t number) {
    value = static_cast<int>(number);
    return true;
  };
  switch (attribute) {
    case 13:
      return answer(board.clock_max_mhz * 1000);
    case 16:
      return answer(board.multiprocessors);
    case 32:
      return answer(board.ecc ? 1 : 0);
    case 33:
      return answer(identity.pci_bus);
    case 36:
      return answer(board.memory_clock_mhz * 1000);
    case 37:
      return answer(board.memory_bus_bits);
    case 38:
      return answer(board.l2_kib * 1024);
    case 39:
      return answer(board.threads_per_multiprocessor);
    case 40:
      return answer(board.fan ? 2 : 3);  // copy engines
    case 50:
      return answer(identity.pci_domain);
    case 75:
      return answer(board.compute_major);
    case 76:
      return answer(board.compute_minor);
    case 81:
      return answer(board.shared_kib_per_multiprocessor * 1024);
    case 85:
      return answer(identity.minor);
    case 87:
      return answer(board.cores_per_multiprocessor == 64 && board.compute_minor == 0 ? 2
                    : board.compute_major >= 9                                       ? 2
                    : board.compute_major == 7                                       ? 32
                                                                                     : 64);
    case 97:
      return answer(static_cast<uint32_t>(shared_bytes_opt_in(board)));
    case 106:
      return answer(static_cast<uint32_t>(blocks_per_multiprocessor(board)));
    case 108:
      return answer(board.compute_major >= 8 ? board.l2_kib * 1024 / 16 * 11 : 0);
    case 120:
      return answer(board.compute_major >= 9 ? 1 : 0);
    case 139:
      return answer(board.pci_device_id << 16 | 0x10DE);
    case 140:
      return answer(0x134F10DE);
    default:
      return false;
  }
}

}  // namespace

int shared_bytes_opt_in(const Board& board) {
  const uint32_t kib = board.shared_kib_per_multiprocessor;
  return static_cast<int>((board.compute_major == 7 ? kib : kib - 1) * 1024);  // from Ampere on, less 1 KiB
}

CUresult device_attribute(const Board& board, const GpuIdentity& identity, int attribute, int& value) {
  if (attribute < 1 || attribute > kAttributeMax) return CUDA_ERROR_INVALID_VALUE;
  if (board_attribute(board, identity, attribute, value)) return CUDA_SUCCESS;
  for (const auto& [number, constant] : kConstants) {
    if (number != attribute) continue;
    value = constant;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tranche::emulator::cuda
