#include "codec/api_fields.h"

namespace tranche::api {

template <class Value>
void append_json(std::string& output, const Value& value) {
  json::Encoder encoder(output, TimeSpelling::rfc3339);
  encoder.put(value, json::kPlain);
}

#define TRANCHE_API_ENCODER(Type) template void append_json<Type>(std::string&, const Type&);
TRANCHE_API_REQUESTS(TRANCHE_API_ENCODER)
TRANCHE_API_ANSWERS(TRANCHE_API_ENCODER)
#undef TRANCHE_API_ENCODER

namespace {

std::string_view title_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "The request cannot be understood";
    case ErrorCode::not_available_yet:
      return "Not available yet";
    case ErrorCode::never_fits:
      return "Can never run here";
    case ErrorCode::denied:
      return "Not allowed";
    case ErrorCode::over_limit:
      return "Over a limit";
    case ErrorCode::not_found:
      return "Not found";
    case ErrorCode::conflict:
      return "Not possible in this state";
    case ErrorCode::too_large:
      return "Too large";
    case ErrorCode::storage_full:
      return "The journal's disk is full";
    case ErrorCode::unavailable:
      return "Not available now";
    case ErrorCode::timed_out:
      return "Timed out";
    case ErrorCode::corrupt:
      return "Stored data is damaged";
    case ErrorCode::internal:
      return "Internal error";
  }
  return "Error";
}

}  // namespace

Problem to_problem(const Error& error) {
  Problem problem;
  problem.type = to_string(error.code());
  problem.title = title_of(error.code());
  problem.status = http_status(error.code());
  problem.detail = error.message();
  return problem;
}

Error to_error(const Problem& problem) {
#define TRANCHE_ERROR_OF(code, status, exit_code) \
  if (problem.type == #code) return Error(ErrorCode::code, problem.detail);
  TRANCHE_ERROR_CODES(TRANCHE_ERROR_OF)
#undef TRANCHE_ERROR_OF
  return Error(ErrorCode::internal, problem.detail.empty() ? problem.title : problem.detail);
}

}  // namespace tranche::api
