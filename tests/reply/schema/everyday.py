"""Schemas as tools and their libraries write them."""

from typing import Any

EVERYDAY: dict[str, Any] = {
    "weather": {
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["location"],
    },
    "strict weather": {
        "type": "object",
        "properties": {
            "location": {"type": "string"},
            "units": {"type": ["string", "null"], "enum": ["celsius", "fahrenheit", None]},
        },
        "required": ["location", "units"],
        "additionalProperties": False,
    },
    "no parameters": {"type": "object", "properties": {}},
    "empty": {},
    "true": True,
    "math steps": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"explanation": {"type": "string"}, "output": {"type": "string"}},
                    "required": ["explanation", "output"],
                    "additionalProperties": False,
                },
            },
            "final_answer": {"type": "string"},
        },
        "required": ["steps", "final_answer"],
        "additionalProperties": False,
    },
    "linked list": {
        "type": "object",
        "properties": {"linked_list": {"$ref": "#/$defs/node"}},
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "number"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "additionalProperties": False,
                "required": ["next", "value"],
            }
        },
        "additionalProperties": False,
        "required": ["linked_list"],
    },
    "user interface": {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["div", "button", "header"]},
            "label": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#"}},
            "attributes": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                    "required": ["name", "value"],
                },
            },
        },
        "required": ["type", "label", "children", "attributes"],
        "additionalProperties": False,
    },
    "file server: edit": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "oldText": {"type": "string", "description": "Text to search for"},
                        "newText": {"type": "string", "description": "Text to replace with"},
                    },
                    "required": ["oldText", "newText"],
                    "additionalProperties": False,
                },
            },
            "dryRun": {"type": "boolean", "default": False},
        },
        "required": ["path", "edits"],
        "additionalProperties": False,
        "$schema": "http://json-schema.org/draft-07/schema#",
    },
    "issue tracker: list": {
        "type": "object",
        "properties": {
            "owner": {"type": "string"},
            "repo": {"type": "string"},
            "state": {"type": "string", "enum": ["open", "closed", "all"], "default": "open"},
            "labels": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "since": {"type": "string", "format": "date-time"},
            "page": {"type": "number", "minimum": 1},
            "perPage": {"type": "number", "minimum": 1, "maximum": 100},
        },
        "required": ["owner", "repo"],
    },
    "fetch": {
        "type": "object",
        "title": "Fetch",
        "properties": {
            "url": {"format": "uri", "minLength": 1, "title": "Url", "type": "string"},
            "max_length": {
                "default": 5000,
                "exclusiveMaximum": 1000000,
                "exclusiveMinimum": 0,
                "type": "integer",
            },
            "start_index": {"default": 0, "minimum": 0, "type": "integer"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["url"],
    },
    "pydantic order": {
        "$defs": {
            "Address": {
                "properties": {
                    "street": {"title": "Street", "type": "string"},
                    "zip": {"pattern": "^\\d{5}(-\\d{4})?$", "title": "Zip", "type": "string"},
                    "country": {"const": "DE", "default": "DE", "title": "Country", "type": "string"},
                },
                "required": ["street", "zip"],
                "title": "Address",
                "type": "object",
            },
            "Color": {"enum": ["red", "green", 3], "title": "Color"},
            "Item": {
                "additionalProperties": False,
                "properties": {
                    "sku": {"maxLength": 12, "minLength": 3, "title": "Sku", "type": "string"},
                    "price": {
                        "anyOf": [
                            {"minimum": 0.0, "type": "number"},
                            {"pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "type": "string"},
                        ],
                        "title": "Price",
                    },
                    "color": {"$ref": "#/$defs/Color"},
                    "weight": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
                },
                "required": ["sku", "price", "color"],
                "title": "Item",
                "type": "object",
            },
        },
        "properties": {
            "id": {"format": "uuid", "title": "Id", "type": "string"},
            "placed": {"format": "date", "title": "Placed", "type": "string"},
            "items": {"items": {"$ref": "#/$defs/Item"}, "maxItems": 3, "minItems": 1, "type": "array"},
            "ship_to": {"allOf": [{"$ref": "#/$defs/Address"}], "description": "Where to"},
            "bill_to": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}], "default": None},
            "point": {
                "maxItems": 2,
                "minItems": 2,
                "prefixItems": [{"type": "number"}, {"type": "string"}],
                "type": "array",
            },
            "email": {"format": "email", "type": "string"},
            "site": {"format": "uri", "maxLength": 2083, "minLength": 1, "type": "string"},
            "wait": {"format": "duration", "type": "string"},
            "opens": {"format": "time", "type": "string"},
            "server": {"format": "ipv4", "type": "string"},
            "discount": {"multipleOf": 0.05, "maximum": 1, "minimum": 0, "type": "number"},
            "counts": {"additionalProperties": {"type": "integer"}, "title": "Counts", "type": "object"},
        },
        "required": ["id", "placed", "items", "ship_to", "point", "discount"],
        "title": "Order",
        "type": "object",
    },
    "pydantic union": {
        "$defs": {
            "Cat": {
                "properties": {"kind": {"const": "cat", "type": "string"}, "lives": {"type": "integer"}},
                "required": ["kind", "lives"],
                "type": "object",
            },
            "Dog": {
                "properties": {"kind": {"const": "dog", "type": "string"}, "good": {"type": "boolean"}},
                "required": ["kind", "good"],
                "type": "object",
            },
        },
        "properties": {
            "pet": {
                "discriminator": {
                    "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
                    "propertyName": "kind",
                },
                "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
            }
        },
        "required": ["pet"],
        "type": "object",
    },
    "pydantic recursion": {
        "$defs": {
            "Folder": {
                "properties": {
                    "name": {"type": "string"},
                    "folders": {"items": {"$ref": "#/$defs/Folder"}, "type": "array"},
                    "parent": {"anyOf": [{"$ref": "#/$defs/Folder"}, {"type": "null"}]},
                },
                "required": ["name", "folders", "parent"],
                "type": "object",
            }
        },
        "$ref": "#/$defs/Folder",
    },
    "zod form": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "id": {
                "type": "string",
                "format": "uuid",
                "pattern": "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-"
                "[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$",
            },
            "email": {
                "type": "string",
                "format": "email",
                "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@"
                "([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
            },
            "at": {
                "type": "string",
                "format": "date-time",
                "pattern": "^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|"
                "[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-"
                "(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))T(?:(?:[01]\\d|2[0-3]):[0-5]\\d"
                "(?::[0-5]\\d(?:\\.\\d+)?)?(?:Z))$",
            },
            "age": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
            "role": {"anyOf": [{"type": "string", "const": "admin"}, {"type": "string", "const": "user"}]},
            "tuple": {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "number"}],
                "items": {"type": "boolean"},
            },
            "record": {
                "type": "object",
                "propertyNames": {"type": "string", "pattern": "^[a-z]{2}_[a-z]+$"},
                "additionalProperties": {"type": "number"},
            },
            "either": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "both": {
                "allOf": [
                    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                    {"type": "object", "properties": {"b": {"type": "number"}}, "required": ["b"]},
                ]
            },
            "maybe": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]},
            "code": {"type": "string", "pattern": "^[A-Z]{2}\\d+$", "minLength": 6, "maxLength": 6},
            "prefixed": {"type": "string", "pattern": "^user_.*"},
        },
        "required": ["id", "email", "at", "age", "role", "tuple", "either", "both", "code"],
        "additionalProperties": False,
    },
    "openapi": {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "format": "int32", "minimum": -2147483648, "maximum": 2147483647},
            "total": {"type": "integer", "format": "int64"},
            "ratio": {"type": "number", "format": "double", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "photo": {"type": "string", "format": "byte"},
            "nickname": {"type": "string", "nullable": True},
            "status": {"type": "string", "enum": ["a", "b"], "nullable": True, "example": "a"},
            "free": {"type": "object", "additionalProperties": True},
        },
        "required": ["count", "total", "ratio", "photo", "nickname", "status", "free"],
    },
    "database query": {
        "type": "object",
        "properties": {
            "table": {"type": "string", "examples": ["users", "orders"]},
            "filters": {
                "type": "array",
                "minItems": 2,
                "items": {
                    "type": "object",
                    "properties": {
                        "column": {"type": "string"},
                        "operator": {"enum": ["=", "<", ">", "LIKE"]},
                        "value": {"type": ["string", "number", "boolean", "null"]},
                    },
                    "required": ["column", "operator", "value"],
                },
            },
            "order_by": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 2,
                "additionalProperties": {"enum": ["asc", "desc"]},
            },
            "limit": {"type": "integer", "minimum": 500, "multipleOf": 25},
        },
        "required": ["table", "filters", "order_by", "limit"],
    },
    "definitions": {
        "definitions": {
            "positive/number~": {"type": "number", "exclusiveMinimum": 0},
            "list": {"$anchor": "all"},
        },
        "type": "object",
        "properties": {
            "size": {"$ref": "#/definitions/positive~1number~0"},
            "same size": {"$ref": "#/properties/size"},
            "percent%": {"type": "integer"},
            "percent": {"$ref": "#/properties/percent%25"},
            "anything": {"$ref": "#all"},
        },
        "required": ["size", "same size", "percent", "anything"],
    },
    "a string": {"type": "string", "minLength": 50, "maxLength": 60},
    "a scalar": {"enum": [1, "a", None, {"b": [True]}]},
    "an array": {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": 3},
        "uniqueItems": True,
    },
    "one of overlapping": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "one of by bounds": {
        "type": "integer",
        "oneOf": [{"multipleOf": 3}, {"multipleOf": 5}],
        "minimum": 1,
        "maximum": 1000,
    },
    "non-ASCII names": {
        "type": "object",
        "properties": {"größe": {"type": "integer"}, "名前": {"type": "string"}},
        "required": ["größe", "名前"],
    },
}

BEYOND: dict[str, Any] = {
    "if": {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}, "count": {"type": "integer"}},
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"required": ["count"]},
        "else": {"not": {"required": ["count"]}},
    },
    "not": {"type": "integer", "not": {"multipleOf": 2}},
    "contains": {
        "type": "array",
        "items": {"type": "integer"},
        "contains": {"minimum": 1000},
        "minContains": 2,
        "maxContains": 2,
    },
    "pattern properties": {
        "type": "object",
        "patternProperties": {"^x-[a-z]+$": {"type": "boolean"}},
        "additionalProperties": False,
        "minProperties": 2,
    },
    "property names": {"type": "object", "propertyNames": {"maxLength": 3}, "minProperties": 3},
    "dependent": {
        "type": "object",
        "properties": {"card": {"type": "string"}, "address": {"type": "string"}, "name": {"type": "string"}},
        "dependentRequired": {"card": ["address"]},
        "dependentSchemas": {"address": {"required": ["name"]}},
    },
}
"""Keywords that are not promised, but met as well."""
