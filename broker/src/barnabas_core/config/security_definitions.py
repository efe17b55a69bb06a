"""The definitions of broker settings for access control."""

from typing import Final

from barnabas_core.config.definitions import ConfigDefinition, ConfigType, OneOf, Pattern

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"

ACCESS_CONTROL: Final = (
    ConfigDefinition(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        OneOf(("", STANDARD_AUTHORIZER, ACL_AUTHORIZER)),
        "The class of the authorizer that enforces ACLs; the two allowed classes have the same effect. If empty, all "
        "clients may do everything.",
    ),
    ConfigDefinition(
        "super.users",
        ConfigType.STRING,
        "",
        Pattern(
            r"\s*([^;:]+:[^;]+(;\s*|$))*",
            "principals as TYPE:NAME, separated by semicolons, such as User:admin;User:CN=broker",
        ),
        "The principals that may do everything, usually with the brokers' own principals among them.",
    ),
    ConfigDefinition(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        False,
        None,
        "Whether all clients may use a resource that has no ACL.",
    ),
)
