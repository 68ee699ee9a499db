from serai.app.services.default_groups import build_default_groups as build_default_groups
from serai.app.services.guest_services import Bus as Bus
from serai.app.services.router import AppServices as AppServices
from serai.app.services.router import NoArguments as NoArguments
from serai.app.services.router import Operation as Operation
from serai.app.services.router import ServiceGrants as ServiceGrants
from serai.app.services.router import ServiceGroup as ServiceGroup
from serai.app.services.router import read_service_grants as read_service_grants
