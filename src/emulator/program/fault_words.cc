#include "emulator/program/fault_words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/quantity_text.h"
#include "emulator/server_description.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kBytesMost = uint64_t{1} << 50;
constexpr uint64_t kPidMost = 1u << 22;  // the kernel's own limit

struct Kind {
  std::string_view name;
  enum class Value { none, optional, required } value;
  enum class Gpus { none, optional, required } gpus;
};

using Value = Kind::Value;
using Gpus = Kind::Gpus;

constexpr std::array kKinds{
    Kind{"list", Value::none, Gpus::none},
    Kind{"clear", Value::none, Gpus::optional},
    Kind{"xid", Value::required, Gpus::required},
    Kind{"lost", Value::none, Gpus::required},
    Kind{"nvml-block", Value::none, Gpus::optional},
    Kind{"driver-mismatch", Value::none, Gpus::none},
    Kind{"thermal", Value::none, Gpus::required},
    Kind{"power", Value::none, Gpus::required},
    Kind{"ecc-corrected", Value::required, Gpus::required},
    Kind{"ecc-uncorrected", Value::required, Gpus::required},
    Kind{"row-remap", Value::required, Gpus::required},
    Kind{"ghost-memory", Value::optional, Gpus::required},
    Kind{"ghost-process", Value::none, Gpus::required},
    Kind{"unkillable", Value::none, Gpus::none},
    Kind{"slow-copy", Value::required, Gpus::required},
    Kind{"checkpoint", Value::required, Gpus::none},
    Kind{"no-uvm", Value::none, Gpus::none},
    Kind{"minor", Value::required, Gpus::required},
};

tl::unexpected<Error> not_understood(const std::string& message) {
  return fail(ErrorCode::invalid_argument, message + " (see tranche-emulator fault --help)");
}

Result<void> apply_option(FaultOrder& order, const std::string& name, const std::string& value) {
  if (name == "--gpu") {
    TRY_ASSIGN(const uint64_t gpu, parse_fault_number(value, kMaxGpus - 1, "--gpu"));
    order.gpus.push_back(static_cast<uint32_t>(gpu));
    return {};
  }
  if (name == "--pid") {
    TRY_ASSIGN(const uint64_t pid, parse_fault_number(value, kPidMost, "--pid"));
    order.pid = static_cast<int32_t>(pid);
    return {};
  }
  if (name == "--instance") {
    TRY_ASSIGN(const uint64_t instance, parse_fault_number(value, 31, "--instance"));
    order.gpu_instance = static_cast<uint32_t>(instance);
    return {};
  }
  auto duration = parse_duration(value);
  if (!duration) return not_understood("--for: " + duration.error().message());
  order.for_ns = static_cast<uint64_t>(duration->count());
  return {};
}

bool* flag_of(FaultOrder& order, const std::string& word) {
  if (word == "--software" && order.kind == "thermal") return &order.software;
  if (word == "--brake" && order.kind == "power") return &order.brake;
  if (word == "--json" && order.kind == "list") return &order.json;
  return nullptr;
}

bool takes(const FaultOrder& order, const Kind& kind, const std::string& option) {
  if (option == "--gpu") return kind.gpus != Gpus::none;
  if (option == "--pid") return order.kind == "xid" || order.kind == "unkillable";
  if (option == "--instance") return order.kind == "xid";
  return option == "--for" && order.kind == "nvml-block";
}

Result<void> check(const FaultOrder& order, const Kind& kind) {
  if (kind.value == Value::required && order.value.empty())
    return not_understood(order.kind + " needs a value");
  if (kind.gpus == Gpus::required && order.gpus.empty()) return not_understood("say which GPU: --gpu N");
  if (order.kind == "unkillable" && order.pid == 0) return not_understood("say which process: --pid P");
  return {};
}

}  // namespace

Result<uint64_t> parse_fault_number(const std::string& text, uint64_t most, const std::string& what) {
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value > most) {
    return not_understood(what + " is a number up to " + std::to_string(most) + ", not \"" + text + "\"");
  }
  return value;
}

Result<uint64_t> parse_fault_bytes(const std::string& text) {
  constexpr std::string_view kUnits = "KMGT";
  const size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  const uint64_t scale = unit == std::string_view::npos ? 1 : uint64_t{1} << (10 * (unit + 1));
  const std::string digits = scale == 1 ? text : text.substr(0, text.size() - 1);
  TRY_ASSIGN(const uint64_t number, parse_fault_number(digits, kBytesMost / scale, "a size such as 50M"));
  return number * scale;
}

Result<FaultOrder> parse_fault(const std::vector<std::string>& words) {
  FaultOrder order;
  order.kind = words.empty() ? "" : words[0];
  const auto kind =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return k.name == order.kind; });
  if (kind == kKinds.end()) return not_understood("\"" + order.kind + "\" is no fault");
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (bool* const flag = flag_of(order, word)) {
      *flag = true;
    } else if (takes(order, *kind, word)) {
      if (i + 1 == words.size()) return not_understood(word + " needs a value");
      TRY(apply_option(order, word, words[++i]));
    } else if (kind->value != Value::none && order.value.empty() && !word.starts_with("-")) {
      order.value = word;
    } else {
      return not_understood("\"" + word + "\" is not understood after " + order.kind);
    }
  }
  TRY(check(order, *kind));
  return order;
}

}  // namespace tranche::emulator
