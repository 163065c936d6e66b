#include "codec/api_fields.h"

namespace tranche::api {

#define TRANCHE_API_REQUEST_DECODER(Type)                                                                     \
  template <>                                                                                                  \
  Result<Type> decode<Type>(std::string_view text) {                                                           \
    return json::decode_text<Type>(text, ErrorCode::invalid_argument, json::Strictness{});                     \
  }
#define TRANCHE_API_ANSWER_DECODER(Type)                                                                      \
  template <>                                                                                                  \
  Result<Type> decode<Type>(std::string_view text) {                                                           \
    return json::decode_text<Type>(text, ErrorCode::invalid_argument,                                          \
                                   json::Strictness{.unknown = json::UnknownFields::ignore});                  \
  }
TRANCHE_API_REQUESTS(TRANCHE_API_REQUEST_DECODER)
TRANCHE_API_ANSWERS(TRANCHE_API_ANSWER_DECODER)
#undef TRANCHE_API_REQUEST_DECODER
#undef TRANCHE_API_ANSWER_DECODER

namespace {

// Lists names with whether they are always there in an answer, or must be in a request.
class SchemaLister {
 public:
  template <class Member, class Base, class Rule = json::Plain>
  void required(std::string_view name, Member Base::*, const Rule& = {}) {
    fields.push_back({std::string(name), !json::IsOptional<Member>::value});
  }
  template <class Member, class Base, class Rule = json::Plain>
  void defaulted(std::string_view name, Member Base::*, const Rule& = {}) {
    fields.push_back({std::string(name), false});
  }
  template <class Member, class Base, class Rule = json::Plain>
  void optional(std::string_view name, Member Base::*, const Rule& = {}) {
    fields.push_back({std::string(name), false});
  }
  template <class Member, class Base, class Rule = json::Plain>
  void when(std::string_view name, bool Base::*, Member Base::*, const Rule& = {}) {
    fields.push_back({std::string(name), false});
  }
  std::vector<FieldName> fields;
};

template <class Type>
SchemaFields fields_of(std::string_view name) {
  SchemaLister lister;
  describe(lister, json::Of<Type>{});
  return {std::string(name), std::move(lister.fields)};
}

}  // namespace

std::vector<SchemaFields> schema_fields() {
  std::vector<SchemaFields> schemas;
#define TRANCHE_SCHEMA(Type) schemas.push_back(fields_of<Type>(#Type));
  TRANCHE_API_REQUESTS(TRANCHE_SCHEMA)
  TRANCHE_API_ANSWERS(TRANCHE_SCHEMA)
  // What stands inside of those.
  TRANCHE_SCHEMA(GpuRequest)
  TRANCHE_SCHEMA(ArraySpec)
  TRANCHE_SCHEMA(Dependency)
  TRANCHE_SCHEMA(ArrayRange)
  TRANCHE_SCHEMA(ArrayElement)
  TRANCHE_SCHEMA(TaskDetail)
  TRANCHE_SCHEMA(HistoryEntry)
  TRANCHE_SCHEMA(SliceRow)
  TRANCHE_SCHEMA(GpuProcess)
  TRANCHE_SCHEMA(ProcessRow)
  TRANCHE_SCHEMA(DoctorCheck)
#undef TRANCHE_SCHEMA
  return schemas;
}

}  // namespace tranche::api
