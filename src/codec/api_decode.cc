#include "codec/api_fields.h"

namespace tranche::api {

#define TRANCHE_API_REQUEST_DECODER(Type)                                                  \
  template <>                                                                              \
  Result<Type> decode<Type>(std::string_view text) {                                       \
    return json::decode_text<Type>(text, ErrorCode::invalid_argument, json::Strictness{}); \
  }
#define TRANCHE_API_ANSWER_DECODER(Type)                                                      \
  template <>                                                                                 \
  Result<Type> decode<Type>(std::string_view text) {                                          \
    return json::decode_text<Type>(text, ErrorCode::invalid_argument,                         \
                                   json::Strictness{.unknown = json::UnknownFields::ignore}); \
  }
TRANCHE_API_REQUESTS(TRANCHE_API_REQUEST_DECODER)
TRANCHE_API_ANSWERS(TRANCHE_API_ANSWER_DECODER)
#undef TRANCHE_API_REQUEST_DECODER
#undef TRANCHE_API_ANSWER_DECODER

namespace {

// Lists names with whether they are always there. In an answer that holds for `defaulted` ones too: they are
// always written, and only reading is tolerant.
class SchemaLister {
 public:
  explicit SchemaLister(bool is_answer) : is_answer_(is_answer) {}

  template <class Member, class Base, class Rule = json::Plain>
  void required(std::string_view name, Member Base::*, const Rule& = {}) {
    fields.push_back({std::string(name), !json::IsOptional<Member>::value});
  }
  template <class Member, class Base, class Rule = json::Plain>
  void defaulted(std::string_view name, Member Base::*, const Rule& = {}) {
    fields.push_back({std::string(name), is_answer_});
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

 private:
  bool is_answer_;
};

template <class Type>
SchemaFields fields_of(std::string_view name, bool is_answer) {
  SchemaLister lister(is_answer);
  describe(lister, json::Of<Type>{});
  return {std::string(name), std::move(lister.fields)};
}

}  // namespace

std::vector<SchemaFields> schema_fields() {
  std::vector<SchemaFields> schemas;
#define TRANCHE_REQUEST_SCHEMA(Type) schemas.push_back(fields_of<Type>(#Type, false));
#define TRANCHE_ANSWER_SCHEMA(Type) schemas.push_back(fields_of<Type>(#Type, true));
  TRANCHE_API_REQUESTS(TRANCHE_REQUEST_SCHEMA)
  TRANCHE_API_ANSWERS(TRANCHE_ANSWER_SCHEMA)
  TRANCHE_API_REQUEST_PARTS(TRANCHE_REQUEST_SCHEMA)
  TRANCHE_API_ANSWER_PARTS(TRANCHE_ANSWER_SCHEMA)
#undef TRANCHE_REQUEST_SCHEMA
#undef TRANCHE_ANSWER_SCHEMA
  return schemas;
}

}  // namespace tranche::api
